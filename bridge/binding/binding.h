// What a task may use of its node: which GPUs it sees, where it runs and how many threads it starts.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/layout.h"
#include "bridge/binding/machine.h"
#include "bridge/base/result.h"
#include "bridge/core/torch_env.h"

namespace torchbridge {

struct Binding {
  // What to set, whatever the environment holds: these rules have looked at it already. With gpus=virtual and
  // gpus=share LOCAL_RANK is among them, as 0.
  std::vector<Variable> variables;
  // To confine the task to (bridge/host/cpu_affinity.h); empty: leave it where it is.
  CpuSet cpus;
  // NUMA node whose memory to prefer; -1: leave it.
  int memory_node = -1;
  // Not empty where the scheduler's choice will surprise programs that index GPUs by LOCAL_RANK, or where a wish could
  // not be met. One line.
  std::string note;
};

// Whether the rules look at the machine at all: reading one is then worth its millisecond.
bool needs_machine(const LaunchOptions& options);

// Whether it is worth reading for a note alone. One that cannot be read then is one that tells nothing.
bool notes_need_machine(const EnvMap& environment, const Layout& layout, const LaunchOptions& options);

// `environment` is the task's as the scheduler left it: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER, SLURM_GPUS_ON_NODE,
// SLURM_STEP_GPUS, SLURM_JOB_GPUS, SLURM_CPUS_PER_TASK and OMP_NUM_THREADS are read. GPU names are kept
// verbatim (index, UUID or MIG). A task without any GPU is left alone, whatever the options. An error may be found by
// one task of a node alone; it must end them all. The rules are in docs/use/binding.md.
Result<Binding> binding_of(const EnvMap& environment, const Layout& layout, const LaunchOptions& options,
                           const Machine& machine = {});

}  // namespace torchbridge
