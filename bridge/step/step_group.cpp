#include "bridge/step/step_group.h"

#include "bridge/core/torch_env.h"
#include "bridge/net/address.h"

namespace torchbridge {

Result<ListeningNode> listening_node(const LaunchFacts& facts, const TaskMap& map,
                                     const LaunchOptions& options, int node, const Endpoint& store,
                                     const HostNames& names) {
  constexpr std::size_t kPorts = 3;  // the listener takes the first that is free
  const auto address = numeric_address(store.host, names);
  if (!address) return address.error();
  ListeningNode listener{.node = node, .address = *address, .listen_at = {}, .ports = {store.port}};
  if (node == facts.node_rank) listener.listen_at = address_to_listen_on(*address, names);
  for (std::size_t i = 1; i < facts.reserved_ports.size() && listener.ports.size() < kPorts; ++i) {
    listener.ports.push_back(facts.reserved_ports[i]);
  }
  LaunchFacts others = facts;
  others.reserved_ports.clear();
  LaunchOptions rules;
  rules.ranks = RankRule::kBlock;
  if (options.port.low != options.port.high)
    rules.port = options.port;  // it may be what a firewall leaves open
  while (listener.ports.size() < kPorts) {
    others.job_id += " bootstrap";
    const auto other = endpoint_of(others, map, rules, PortRange{});
    if (!other) return other.error();
    listener.ports.push_back(other->port);
  }
  return listener;
}

BootstrapGroup group_of_step(const LaunchFacts& facts, const Layout& at, const ListeningNode& where,
                             const std::string& purpose, const std::string& token) {
  const std::string job = run_id_of(facts) + "/" + purpose;
  return {.job = job,
          .secret = group_secret(token),
          .rank = at.rank,
          .size = at.world_size,
          .node_key = job + "/" + std::to_string(at.node_rank),
          .local_rank = at.local_rank,
          .local_size = at.local_world_size,
          .listens = at.node_rank == where.node,
          .listen_at = at.node_rank == where.node && at.node_count > 1 ? where.listen_at : "",
          .ports = where.ports,
          .first_hosts =
              at.node_rank == where.node ? std::vector<std::string>() : std::vector{where.address}};
}

Result<Values> all_gather_in_step(const BootstrapGroup& group, const std::string& value,
                                  std::chrono::milliseconds timeout, const Reduce& reduce) {
  auto gathered = all_gather(group, value, timeout, reduce);
  if (!gathered) {
    Error error = gathered.error();
    error.only_here = !error.reported_elsewhere;
    return error;
  }
  if (gathered->unreached.empty()) return std::move(gathered->values);
  const bool is_first_of_node = group.local_rank == 0;
  return Error{.message = gathered->unreached,
               .reported_elsewhere = !is_first_of_node,
               .only_here = is_first_of_node};
}

}  // namespace torchbridge
