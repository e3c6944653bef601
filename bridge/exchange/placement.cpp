#include <torchbridge/exchange/placement.h>

#include <torchbridge/core/hostlist.h>
#include <torchbridge/core/task_map.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/did_not_come.h>
#include <torchbridge/net/roll_call.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/task/meeting_places.h>
#include <torchbridge/task/store_port.h>

namespace torchbridge {
namespace {

Options of_first_node() {
  Options options;
  options.ranks = RankRule::kBlock;
  return options;
}

Result<Endpoint> meeting_place(const LaunchFacts& facts, const TaskMap& map) {
  auto place = store_endpoint_of(facts, map, of_first_node());
  if (!place) return place.error();
  auto host = numeric_address(place->host);
  if (!host) return host.error();
  return Endpoint{std::move(*host), place->port};
}

// The launcher's ranks in the order of nodes and local ranks: in torchrun's numbering, where everybody knows his own place.
Result<std::string> ranks_in_order(const LaunchFacts& facts, const TaskMap& map, std::chrono::milliseconds timeout) {
  const auto place = meeting_place(facts, map);
  if (!place) return place.error();
  RollCall call{.token = "placement-" + facts.job_id + "." + facts.step_id + "-" + std::to_string(facts.restart_count),
                .nodes = {},
                .what_master_is = "the first node",
                .timeout = timeout,
                .elsewhere = [&] { return other_meeting_places(facts, map, of_first_node()); }};
  for (int node = 0; node < map.node_count(); ++node) call.nodes.insert(call.nodes.end(), map.tasks_on(node), facts.nodes[node]);
  const int number = map.ranks_before(facts.node_rank) + facts.local_rank;
  const std::string own = std::to_string(facts.rank);
  if (number != 0) return answer_roll(*place, call, number, own);
  auto listener = listen_on({address_to_listen_on(place->host), place->port});
  if (!listener) listener = listen_elsewhere(call);
  if (!listener) return listener.error();
  auto roll = Roll::take(*listener, call);
  if (!roll) return Error{"ranks did not come: " + roll.error().message};
  std::string ranks = own;
  for (std::size_t i = 1; i < roll->texts().size(); ++i) ranks += "," + roll->texts()[i];
  roll->answer(ranks);
  return ranks;
}

}  // namespace

bool can_ask_for_placement(const LaunchFacts& facts) {
  const bool told = facts.placement != Placement::kUnknown && !facts.heterogeneous;
  return !told && facts.node_of_rank.empty() && facts.nodes.size() > 1;
}

Status ask_for_placement(LaunchFacts& facts, std::chrono::milliseconds timeout) {
  const auto map = task_map_of(facts);
  if (!map) return map.error();
  const auto failed = [&](const std::string& what) {
    const std::string why = facts.heterogeneous ? "are those of several components" : "were placed one by one (--distribution=arbitrary)";
    return Error{facts.launcher + ": the ranks " + why + " and had to ask each other: " + what +
                 ": give ranks=block, which numbers them node by node"};
  };
  const auto text = ranks_in_order(facts, *map, timeout);
  if (!text) return failed(text.error().message);
  if (*text == kRollIncomplete) return failed("ranks did not come within " + seconds(timeout) + ", does every rank run this program?");
  const auto ranks = parse_number_list(*text, facts.world_size - 1);
  if (!ranks || static_cast<int>(ranks->size()) != facts.world_size) return failed("the answer is not a list of all ranks");
  std::vector<int> node_of_rank(facts.world_size, -1);
  for (int node = 0, number = 0; node < map->node_count(); ++node) {
    for (int i = 0; i < map->tasks_on(node); ++i) node_of_rank[(*ranks)[number++]] = node;
  }
  for (const int node : node_of_rank) {
    if (node < 0) return failed("two of them say that they are the same rank");
  }
  facts.node_of_rank = std::move(node_of_rank);
  return Ok{};
}

}  // namespace torchbridge
