// The part of a node that a task uses: the GPUs that it sees, its CPUs and its number of threads.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/binding/machine.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/layout.h"
#include "bridge/core/torch_env.h"

namespace torchbridge {

struct Binding {
  // Variables to set, also where the environment has them already: the rules have read it. With
  // gpus=virtual and gpus=share LOCAL_RANK is among them, as 0.
  std::vector<Variable> variables;
  // The CPUs to bind the task to (bridge/host/cpu_affinity.h); empty: unchanged.
  CpuSet cpus;
  // NUMA node whose memory to prefer; -1: unchanged.
  int memory_node = -1;
  // A warning, one line: programs that index GPUs by LOCAL_RANK will not find theirs as the
  // scheduler assigned them, or an option could not be applied. Else empty.
  std::string note;
};

// Whether the rules need the machine. Reading it takes about a millisecond.
bool needs_machine(const LaunchOptions& options);

// Whether the machine is needed for the note alone. If it cannot be read then, an empty Machine
// will do.
bool notes_need_machine(const EnvMap& environment, const Layout& layout,
                        const LaunchOptions& options);

// `environment` is the task's as the scheduler left it: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER,
// SLURM_GPUS_ON_NODE, SLURM_STEP_GPUS, SLURM_JOB_GPUS, SLURM_CPUS_PER_TASK and OMP_NUM_THREADS are
// read. GPU names are kept verbatim (index, UUID or MIG). A task without any GPU is unchanged by
// every rule. One task of a node may have an error that the others do not have; it must end them
// all. The rules are in docs/use/binding.md.
Result<Binding> binding_of(const EnvMap& environment, const Layout& layout,
                           const LaunchOptions& options, const Machine& machine = {});

}  // namespace torchbridge
