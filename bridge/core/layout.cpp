#include "bridge/core/layout.h"

#include <cassert>

#include "bridge/core/task_map.h"

namespace torchbridge {

Layout layout_of(const TaskMap& map, int rank) {
  assert(map.knows(rank));
  const int node = map.node_of(rank);
  return {.rank = rank,
          .world_size = map.world_size(),
          .local_rank = map.local_rank_of(rank),
          .local_world_size = map.tasks_on(node),
          .node_rank = node,
          .node_count = map.node_count()};
}

}  // namespace torchbridge
