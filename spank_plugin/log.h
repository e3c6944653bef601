// The log of this process of Slurm: that of srun, sbatch and salloc goes to the user's terminal, as slurmstepd's errors
// do.
#pragma once

#include <slurm/slurm.h>

#include "bridge/base/take_until.h"
#include "spank_plugin/spank.h"

namespace torchbridge {

inline void tell_log(std::string_view text) {
  while (!text.empty()) {
    const auto line = take_until(text, '\n');
    slurm_error("torch-env: %.*s", static_cast<int>(line.size()), line.data());
  }
}

}  // namespace torchbridge
