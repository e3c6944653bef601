// Which GPUs the scheduler lets a task see, and which of them are its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/binding/topology.h"
#include "bridge/core/layout.h"

namespace torchbridge {

inline constexpr int kMaxGpus = 256;  // of one node; seven MIG devices each of 16 GPUs are 112

struct VisibleGpus {
  // Every task of the node sees the same list; each sees GPUs of its own; or it is not known which
  // of the two.
  enum class Kind { kShared, kOwn, kUnclear };

  std::vector<std::string> names;  // as in CUDA_VISIBLE_DEVICES; empty: the task has no GPU
  int on_node = 0;                 // GPUs of the step on this node; 0: not known
  Kind kind = Kind::kShared;
};

// From CUDA_VISIBLE_DEVICES and SLURM_GPUS_ON_NODE. Without the first, under Slurm, the machine's
// usable GPUs where their number is the one that Slurm gave; under another launcher all of them. A
// job to which Slurm gave no GPU sees none, whatever the machine has. An error names a list that
// CUDA would cut short, with an empty name or one twice, and one of more than kMaxGpus.
Result<VisibleGpus> visible_gpus(const EnvMap& environment, const Layout& layout,
                                 const Topology& topology);

// The GPUs of the step on this node, where a task was given some of them only: in the machine's
// order from the topology, else from SLURM_STEP_GPUS, SLURM_JOB_GPUS or the bare numbers, each used
// only where it has this task's own GPUs at this task's position. If every task of the node finds
// its own, the list is right for all; an error in any must end them all.
Result<std::vector<std::string>> step_gpus(const VisibleGpus& visible, const EnvMap& environment,
                                           const Layout& layout, const Topology& topology);

// "0, 1": without the blanks, as CUDA reads it.
std::vector<std::string> split_names(std::string_view text);
bool are_indices(const std::vector<std::string>& names);

}  // namespace torchbridge
