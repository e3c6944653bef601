// Which ranks the workers of one agent have in an attempt, and on which node they are.
#pragma once

namespace torchbridge {

struct WorkerRanks {
  int node_rank = 0, node_count = 1;
  int first_rank = 0, world_size = 1;              // of the agent's first worker; of all nodes
  int first_local_rank = 0, local_world_size = 1;  // of the agent's first worker; of its node
  // Of the agent's first worker; of all workers of its role.
  int first_role_rank = 0, role_world_size = 1;
  bool operator==(const WorkerRanks&) const = default;
};

}  // namespace torchbridge
