#include "bridge/core/task_map.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>
#include <string>

namespace torchbridge {
namespace {

bool agrees_with_this_node(const TaskMap& map, const LaunchFacts& facts) {
  const auto matches = [&](int rank, int local_rank) {
    return map.node_of(rank) == facts.node_rank && map.local_rank_of(rank) == local_rank;
  };
  if (!matches(facts.rank, facts.local_rank)) return false;
  for (std::size_t i = 0; i < facts.ranks_here.size(); ++i) {
    if (!matches(facts.ranks_here[i], static_cast<int>(i))) return false;
  }
  return true;
}

Error contradiction(const LaunchFacts& facts, const std::string& what) { return {facts.launcher + ": " + what}; }

std::string tasks(std::int64_t count) { return std::to_string(count) + (count == 1 ? " task" : " tasks"); }

// Counts, node number, names and sizes must agree.
Status check_counts(const LaunchFacts& facts) {
  const auto& counts = facts.tasks_per_node;
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const int nodes = static_cast<int>(counts.size());
  if (total != facts.world_size) {
    return contradiction(facts, "the step has " + tasks(facts.world_size) + ", but its nodes hold " + tasks(total));
  }
  if (!facts.nodes.empty() && static_cast<int>(facts.nodes.size()) != nodes) {
    return contradiction(facts, "the node list names " + std::to_string(facts.nodes.size()) +
                                    " nodes, but task counts are given for " + std::to_string(nodes));
  }
  if (facts.node_rank >= nodes) {
    return contradiction(facts, "this is node " + std::to_string(facts.node_rank) + ", but the step has " +
                                    std::to_string(nodes) + " nodes, numbered from 0");
  }
  if (counts[facts.node_rank] != facts.local_size) {
    return contradiction(facts, "node " + std::to_string(facts.node_rank) + " holds " + tasks(counts[facts.node_rank]) +
                                    " by the counts, but " + tasks(facts.local_size) + " by the list of its ranks");
  }
  for (const int rank : facts.ranks_here) {
    if (rank >= facts.world_size) {
      return contradiction(facts, "rank " + std::to_string(rank) + " is on this node, but the step has " +
                                      tasks(facts.world_size) + ", numbered from 0");
    }
  }
  return Ok{};
}

Result<TaskMap> map_from_nodes(const LaunchFacts& facts) {
  if (static_cast<int>(facts.node_of_rank.size()) != facts.world_size) {
    return contradiction(facts, "the launcher started " + tasks(facts.world_size) + ", but the nodes of " +
                                    std::to_string(facts.node_of_rank.size()) + " are known");
  }
  TaskMap map = TaskMap::from_nodes(facts.node_of_rank);
  if (!facts.tasks_per_node.empty()) {  // the nodes have the launcher's numbers, so both must be equal
    if (map.tasks_per_node() == facts.tasks_per_node && agrees_with_this_node(map, facts)) return map;
    return contradiction(facts, "the task counts of the nodes, or the ranks of node " +
                                    std::to_string(facts.node_rank) + ", contradict the list of the ranks' nodes");
  }
  const int node = map.node_of(facts.rank);
  if (map.tasks_on(node) == facts.local_size && map.local_rank_of(facts.rank) == facts.local_rank) return map;
  return contradiction(facts, "rank " + std::to_string(facts.rank) + " is local rank " +
                                  std::to_string(facts.local_rank) + " of " + std::to_string(facts.local_size) +
                                  " by its variables, but local rank " + std::to_string(map.local_rank_of(facts.rank)) +
                                  " of " + std::to_string(map.tasks_on(node)) +
                                  " by the nodes that the ranks exchanged");
}

}  // namespace

TaskMap::TaskMap(std::vector<int> tasks_per_node)
    : tasks_per_node_(std::move(tasks_per_node)), placed_(tasks_per_node_.size(), 0) {
  const int world_size = std::accumulate(tasks_per_node_.begin(), tasks_per_node_.end(), 0);
  node_of_.assign(world_size, -1);
  local_rank_of_.assign(world_size, -1);
}

void TaskMap::assign(int rank, int node) {
  node_of_[rank] = node;
  local_rank_of_[rank] = placed_[node]++;
}

TaskMap TaskMap::block(const std::vector<int>& tasks_per_node) {
  TaskMap map(tasks_per_node);
  int rank = 0;
  for (int node = 0; node < map.node_count(); ++node) {
    for (int i = 0; i < map.tasks_on(node); ++i) map.assign(rank++, node);
  }
  return map;
}

TaskMap TaskMap::plane(const std::vector<int>& tasks_per_node, int plane_size) {
  assert(plane_size >= 1);
  TaskMap map(tasks_per_node);
  const auto room = [&map](int node) { return map.tasks_on(node) - map.placed_[node]; };
  std::vector<int> open(
      map.node_count());  // nodes with room, so that one large node costs no rounds over all the others
  std::iota(open.begin(), open.end(), 0);
  for (int rank = 0; !open.empty();) {
    for (const int node : open) {
      for (int i = std::min(plane_size, room(node)); i > 0; --i) map.assign(rank++, node);
    }
    std::erase_if(open, [&](int node) { return room(node) == 0; });
  }
  return map;
}

TaskMap TaskMap::from_nodes(const std::vector<int>& node_of_rank) {
  std::vector<int> counts;
  for (const int node : node_of_rank) {
    if (node >= static_cast<int>(counts.size())) counts.resize(node + 1, 0);
    ++counts[node];
  }
  TaskMap map(std::move(counts));
  for (int rank = 0; rank < map.world_size(); ++rank) map.assign(rank, node_of_rank[rank]);
  return map;
}

TaskMap TaskMap::of_one_node(const std::vector<int>& tasks_per_node, int node, const std::vector<int>& ranks) {
  TaskMap map(tasks_per_node);
  for (const int rank : ranks) map.assign(rank, node);
  return map;
}

int TaskMap::ranks_before(int node) const {
  return std::accumulate(tasks_per_node_.begin(), tasks_per_node_.begin() + node, 0);
}

Result<TaskMap> task_map_of(const LaunchFacts& facts) {
  if (!facts.node_of_rank.empty()) return map_from_nodes(facts);
  assert(!facts.tasks_per_node.empty());
  if (const auto consistent = check_counts(facts); !consistent) return consistent.error();

  const auto& counts = facts.tasks_per_node;
  if (facts.placement == Placement::kPlane && facts.plane_size >= 1) {
    if (auto map = TaskMap::plane(counts, facts.plane_size); agrees_with_this_node(map, facts)) return map;
  }
  if (facts.placement == Placement::kCyclic) {
    if (auto map = TaskMap::plane(counts, 1); agrees_with_this_node(map, facts)) return map;
  }
  if (facts.placement != Placement::kUnknown || counts.size() == 1) {
    if (auto map = TaskMap::block(counts); agrees_with_this_node(map, facts)) return map;
  }
  if (static_cast<int>(facts.ranks_here.size()) == facts.local_size) {
    auto map = TaskMap::of_one_node(counts, facts.node_rank, facts.ranks_here);
    if (agrees_with_this_node(map, facts)) return map;
  }
  return contradiction(facts, "rank " + std::to_string(facts.rank) + " cannot be local rank " +
                                  std::to_string(facts.local_rank) + " of node " + std::to_string(facts.node_rank) +
                                  ": the task counts of the nodes, or the list of its ranks, contradict it");
}

}  // namespace torchbridge
