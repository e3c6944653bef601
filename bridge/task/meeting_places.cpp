#include <torchbridge/task/meeting_places.h>

#include <torchbridge/net/address.h>
#include <torchbridge/task/store_port.h>

namespace torchbridge {

std::vector<Endpoint> other_meeting_places(const LaunchFacts& facts, const TaskMap& map, const Options& options) {
  constexpr std::size_t kPlaces = 3;
  Options rules;  // what the user or the site says of MASTER_ADDR and a single port may be what does not work
  rules.ranks = options.ranks;
  if (options.port.low != options.port.high) rules.port = options.port;  // it may be what a firewall leaves open
  const auto first = store_endpoint_of(facts, map, rules);
  const auto host = first ? numeric_address(first->host) : Result<std::string>(first.error());
  if (!host) return {};
  std::vector<Endpoint> places;
  for (std::size_t i = 1; i < facts.reserved_ports.size() && places.size() < kPlaces; ++i) places.push_back({*host, facts.reserved_ports[i]});
  LaunchFacts meeting = facts;
  meeting.reserved_ports.clear();
  while (places.size() < kPlaces) {
    meeting.job_id += " meeting";
    const auto place = endpoint_of(meeting, map, rules, PortRange{});
    if (!place) return places;
    places.push_back({*host, place->port});
  }
  return places;
}

}  // namespace torchbridge
