// Which rank runs on which node: the only source of all positions.
#pragma once

#include <vector>

#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// Nodes are numbered 0..node_count()-1 and hold at least one rank each, not necessarily the same
// number. A rank's local rank is its index among the ranks of its node in ascending order.
// Immutable.
class TaskMap {
 public:
  // REQUIRES for all: every count is at least 1.
  static TaskMap block(const std::vector<int>& tasks_per_node);
  // Round robin over the nodes, `plane_size` ranks at a time; a full node is passed over. Cyclic is
  // a plane of 1.
  static TaskMap plane(const std::vector<int>& tasks_per_node, int plane_size);
  // REQUIRES: the values are 0..n-1, each at least once.
  static TaskMap from_nodes(const std::vector<int>& node_of_rank);
  // Counts of all nodes, but ranks of one node only. REQUIRES: ranks.size() ==
  // tasks_per_node[node].
  static TaskMap of_one_node(const std::vector<int>& tasks_per_node, int node,
                             const std::vector<int>& ranks);

  int world_size() const { return static_cast<int>(node_of_.size()); }
  int node_count() const { return static_cast<int>(tasks_per_node_.size()); }
  int tasks_on(int node) const { return tasks_per_node_[node]; }
  const std::vector<int>& tasks_per_node() const { return tasks_per_node_; }
  // How many ranks the nodes before this one hold: the node's base in torchrun's numbering.
  int ranks_before(int node) const;

  // False only for a map of one node in a job of several.
  bool complete() const { return placed_ == tasks_per_node_; }
  // False only in an incomplete map, for the ranks of the other nodes.
  bool knows(int rank) const { return node_of_[rank] >= 0; }
  int node_of(int rank) const { return node_of_[rank]; }
  int local_rank_of(int rank) const { return local_rank_of_[rank]; }

 private:
  explicit TaskMap(std::vector<int> tasks_per_node);
  void assign(int rank, int node);

  std::vector<int> tasks_per_node_;
  std::vector<int> placed_;  // so far, on each node
  std::vector<int> node_of_, local_rank_of_;
};

// The map of the launcher's own numbering. The facts of this node (ranks, local rank, counts) take
// precedence: a placement that contradicts them is not used. Facts that contradict each other are
// an error that contains both.
Result<TaskMap> task_map_of(const LaunchFacts& facts);

}  // namespace torchbridge
