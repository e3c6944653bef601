// The log of the Slurm process that loaded the plugin. That of srun, sbatch and salloc is the user's terminal, and
// slurmstepd's errors go there too.
#pragma once

#include <slurm/slurm.h>

#include "bridge/base/take_until.h"
#include "spank_plugin/spank.h"

namespace torchbridge {

inline void log_lines(std::string_view text) {
  while (!text.empty()) {
    const auto line = take_until(text, '\n');
    slurm_error("torch-env: %.*s", static_cast<int>(line.size()), line.data());
  }
}

}  // namespace torchbridge
