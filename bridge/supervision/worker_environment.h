// The environment of the workers of one attempt.
#pragma once

#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/torch_env.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// Where the workers of this node are in the run, and what they share.
struct AttemptFacts {
  int node_rank = 0, node_count = 1;
  int local_world_size = 1;
  int first_rank = 0, world_size = 1;  // of this node's first worker; of all nodes
  Endpoint master;
  std::string run_id;
  int restart_count = 0, max_restarts = 0;
  bool use_agent_store = false;
};

// torchrun's variables on top of the agent's environment. `error_file` is TORCHELASTIC_ERROR_FILE, empty where there is
// none. REQUIRES: 0 <= local_rank < local_world_size, and with has_virtual_local_rank check_virtual_devices passed.
EnvMap worker_environment(const EnvMap& environment, const AttemptFacts& facts, const RunOptions& options,
                          int local_rank, const std::string& error_file);

// With --virtual-local-rank: CUDA_VISIBLE_DEVICES, where it is set, names a device for each worker.
Status check_virtual_devices(const EnvMap& environment, const RunOptions& options, int local_world_size);

}  // namespace torchbridge
