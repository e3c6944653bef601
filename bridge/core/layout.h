// The position of one rank in the job.
#pragma once

namespace torchbridge {

class TaskMap;

// All ranks and counts as torchrun defines them; a group is a node. Nodes may hold different
// numbers of ranks.
struct Layout {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;
  int node_rank = 0, node_count = 1;

  bool operator==(const Layout&) const = default;
};

// REQUIRES: map.knows(rank).
Layout layout_of(const TaskMap& map, int rank);

}  // namespace torchbridge
