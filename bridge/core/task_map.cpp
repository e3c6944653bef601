#include "bridge/core/task_map.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>
#include <string>

#include "bridge/base/message_text.h"

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

Error contradiction(const LaunchFacts& facts, const std::string& what) {
  return {facts.launcher + ": " + what};
}

// Counts, node number, names and sizes must agree.
Status check_counts(const LaunchFacts& facts) {
  const auto& counts = facts.tasks_per_node;
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const int nodes = static_cast<int>(counts.size());
  if (total != facts.world_size) {
    return contradiction(facts,
                         formatted("the step has {}, but its nodes hold {}",
                                   counted(facts.world_size, "task"), counted(total, "task")));
  }
  if (!facts.nodes.empty() && static_cast<int>(facts.nodes.size()) != nodes) {
    return contradiction(facts,
                         formatted("the node list names {} nodes, but task counts are given for {}",
                                   facts.nodes.size(), nodes));
  }
  if (facts.node_rank >= nodes) {
    return contradiction(facts,
                         formatted("this is node {}, but the step has {} nodes, numbered from 0",
                                   facts.node_rank, nodes));
  }
  if (counts[facts.node_rank] != facts.local_size) {
    return contradiction(
        facts, formatted("node {} holds {} by the counts, but {} by the list of its ranks",
                         facts.node_rank, counted(counts[facts.node_rank], "task"),
                         counted(facts.local_size, "task")));
  }
  for (const int rank : facts.ranks_here) {
    if (rank >= facts.world_size) {
      return contradiction(
          facts, formatted("rank {} is on this node, but the step has {}, numbered from 0", rank,
                           counted(facts.world_size, "task")));
    }
  }
  return Ok{};
}

Result<TaskMap> map_from_nodes(const LaunchFacts& facts) {
  if (static_cast<int>(facts.node_of_rank.size()) != facts.world_size) {
    return contradiction(facts,
                         formatted("the launcher started {}, but the nodes of {} are known",
                                   counted(facts.world_size, "task"), facts.node_of_rank.size()));
  }
  TaskMap map = TaskMap::from_nodes(facts.node_of_rank);
  // The nodes have the launcher's numbers, so both must be equal.
  if (!facts.tasks_per_node.empty()) {
    if (map.tasks_per_node() == facts.tasks_per_node && agrees_with_this_node(map, facts))
      return map;
    return contradiction(facts, formatted("the task counts of the nodes, or the ranks of node {}, "
                                          "contradict the list of the ranks' nodes",
                                          facts.node_rank));
  }
  const int node = map.node_of(facts.rank);
  if (map.tasks_on(node) == facts.local_size && map.local_rank_of(facts.rank) == facts.local_rank)
    return map;
  return contradiction(facts, formatted("rank {} is local rank {} of {} by its variables, but "
                                        "local rank {} of {} by the nodes that the ranks exchanged",
                                        facts.rank, facts.local_rank, facts.local_size,
                                        map.local_rank_of(facts.rank), map.tasks_on(node)));
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
  std::vector<int> open(map.node_count());  // nodes with room, so that one large node costs no
                                            // rounds over all the others
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

TaskMap TaskMap::of_one_node(const std::vector<int>& tasks_per_node, int node,
                             const std::vector<int>& ranks) {
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
    if (auto map = TaskMap::plane(counts, facts.plane_size); agrees_with_this_node(map, facts))
      return map;
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
  return contradiction(facts,
                       formatted("rank {} cannot be local rank {} of node {}: the task counts of "
                                 "the nodes, or the list of its ranks, contradict it",
                                 facts.rank, facts.local_rank, facts.node_rank));
}

}  // namespace torchbridge
