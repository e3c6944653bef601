// The facts that torchrun 2.11 gives a worker, as a value, and as environment variables.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/layout.h"
#include "bridge/core/task_map.h"

namespace torchbridge {

struct TorchEnv {
  Layout layout;
  Endpoint master;
  // TORCHELASTIC_RUN_ID: the same for all ranks of one run, new with each requeue.
  std::string run_id = "none";
  int restart_count = 0;  // how often the run was started again
  int max_restarts = 0;
  // True: a process other than rank 0 serves the store, so rank 0 is a client too.
  bool use_agent_store = false;
};

// "slurm-123.0", and "slurm-123.0-r1" after the first requeue: no two runs share an id.
std::string run_id_of(const LaunchFacts& facts);

// The TorchEnv of this process, from a launcher's facts. REQUIRES: map.knows(facts.rank).
TorchEnv torch_env_of(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                      Endpoint master);

using Variable = std::pair<std::string, std::string>;

// The environment with the variables on top of it.
EnvMap with_variables(EnvMap environment, const std::vector<Variable>& variables);

// The variables in torchrun's order: RANK, LOCAL_RANK, WORLD_SIZE ...
// TORCH_NCCL_ASYNC_ERROR_HANDLING. Does not hold OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES, which
// depend on what the user set (binding.h).
std::vector<Variable> variables_of(const TorchEnv& env);

// What the plugin in srun requests of the plugin on the nodes, which removes it
// (spank_plugin/step_request.h): a program finds it only on a node without the plugin. The name
// begins with SLURM_ because `srun --export=NONE` keeps only those.
inline constexpr char kStepRequestVariable[] = "SLURM_TORCH_ENV";

// Reads the variables back, of a process started by torchrun, by the plugin or by hand. RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be there; LOCAL_RANK and the others are optional,
// with LOCAL_RANK = RANK % LOCAL_WORLD_SIZE and one node where they are missing. An error names the
// variable and what contradicts it; it is only_here where the variable differs between the ranks,
// and where the plugin is not loaded.
Result<TorchEnv> torch_env_from(const EnvMap& environment);

}  // namespace torchbridge
