// What a task may use of its node: which GPUs it sees and how many threads it starts.
#pragma once

#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/layout.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/torch_env.h>

namespace torchbridge {

struct Binding {
  // What to set, whatever the environment holds: these rules have looked at it already. With gpus=virtual LOCAL_RANK is
  // among them, as 0.
  std::vector<Variable> variables;
  // Not empty where the scheduler's choice will surprise programs that index GPUs by LOCAL_RANK.
  std::string note;
};

// `environment` is the task's as the scheduler left it: CUDA_VISIBLE_DEVICES, SLURM_STEP_GPUS, SLURM_CPUS_PER_TASK and
// OMP_NUM_THREADS are read. GPU names are opaque (index, UUID or MIG). A task without any GPU is left alone.
Result<Binding> binding_of(const EnvMap& environment, const Layout& layout, const Options& options);

}  // namespace torchbridge
