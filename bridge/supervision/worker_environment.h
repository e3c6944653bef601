// The environment of the workers of one attempt.
#pragma once

#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/torch_env.h"
#include "bridge/run_values/run_options.h"
#include "bridge/run_values/worker_ranks.h"

namespace torchbridge {

// Where the workers of this node are in the run, and what they share.
struct AttemptFacts {
  WorkerRanks ranks;
  int workers = 1;  // of this agent
  Endpoint master;
  std::string run_id;
  int restart_count = 0, max_restarts = 0;
  std::string interface;  // for GLOO_SOCKET_IFNAME where that is not set; empty: none
};

// What the environments of all workers of this agent have in common in all attempts, for modules
// that read it when they are imported.
EnvMap preload_environment(const EnvMap& environment, const RunOptions& options, int workers);

// torchrun's variables on top of the agent's environment. `error_file` is TORCHELASTIC_ERROR_FILE,
// empty where there is none. REQUIRES: 0 <= index < facts.workers, and with has_virtual_local_rank
// check_virtual_devices passed.
EnvMap worker_environment(const EnvMap& environment, const AttemptFacts& facts,
                          const RunOptions& options, int index, const std::string& error_file);

// With --virtual-local-rank: CUDA_VISIBLE_DEVICES, where it is set, names a device for each worker.
Status check_virtual_devices(const EnvMap& environment, const RunOptions& options, int workers);

}  // namespace torchbridge
