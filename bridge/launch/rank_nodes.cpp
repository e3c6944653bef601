#include "bridge/launch/rank_nodes.h"

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/core/task_map.h"
#include "bridge/step/step_group.h"
#include "bridge/step/store_port.h"

namespace torchbridge {
namespace {

// The launcher's rank of each task, in the order of nodes and local ranks: each task has its own
// index in that order, which is torchrun's numbering.
Result<Values> ranks_in_order(const LaunchFacts& facts, const TaskMap& map,
                              const std::string& token, std::chrono::milliseconds timeout) {
  LaunchOptions of_first_node;
  of_first_node.ranks = RankRule::kBlock;
  const auto store = store_endpoint_of(facts, map, of_first_node);
  if (!store) return Error{.message = store.error().message, .only_here = true};
  const auto where = listening_node(facts, map, of_first_node, 0, *store);
  if (!where) return Error{.message = where.error().message, .only_here = true};
  const Layout at{.rank = map.ranks_before(facts.node_rank) + facts.local_rank,
                  .world_size = facts.world_size,
                  .local_rank = facts.local_rank,
                  .local_world_size = map.tasks_on(facts.node_rank),
                  .node_rank = facts.node_rank,
                  .node_count = map.node_count()};
  return all_gather_in_step(group_of_step(facts, at, *where, "placement", token),
                            std::to_string(facts.rank), timeout);
}

}  // namespace

bool can_exchange_placement(const LaunchFacts& facts) {
  const bool is_known = facts.placement != Placement::kUnknown && !facts.heterogeneous;
  return !is_known && facts.node_of_rank.empty() && facts.nodes.size() > 1;
}

Status exchange_placement(LaunchFacts& facts, const std::string& token,
                          std::chrono::milliseconds timeout) {
  const auto map = task_map_of(facts);
  if (!map) return map.error();
  const auto failed = [&](Error error) {
    const std::string why =
        facts.heterogeneous ? "a heterogeneous step" : "--distribution=arbitrary";
    error.message = formatted(
        "{}: the nodes of the ranks are not known ({}), and the ranks failed to exchange them: {}: "
        "give ranks=block, which numbers the ranks node by node",
        facts.launcher, why, error.message);
    return error;
  };
  const auto ranks = ranks_in_order(facts, *map, token, timeout);
  if (!ranks) return failed(ranks.error());
  std::vector<int> node_of_rank(facts.world_size, -1);
  for (int node = 0, member = 0; node < map->node_count(); ++node) {
    for (int i = 0; i < map->tasks_on(node); ++i) {
      const auto rank = parse_integer((*ranks)[member++], 0, facts.world_size - 1);
      if (!rank || node_of_rank[*rank] >= 0) return failed({"two tasks sent the same rank"});
      node_of_rank[*rank] = node;
    }
  }
  facts.node_of_rank = std::move(node_of_rank);
  return Ok{};
}

}  // namespace torchbridge
