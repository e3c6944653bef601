// The log of the Slurm process that loaded the plugin. That of srun, sbatch and salloc is the
// user's terminal, and slurmstepd's errors go there too.
#pragma once

#include <slurm/slurm.h>

#include "bridge/base/take_until.h"
#include "bridge/base/visible_text.h"
#include "spank_plugin/spank.h"

namespace torchbridge {

// Without control characters: the text may be a program's or another process's, and slurmd's log is
// root's.
inline void log_lines(std::string_view text) {
  constexpr std::size_t kMaxLine = 4096;
  constexpr int kMaxLines = 80;
  for (int line = 0; !text.empty() && line < kMaxLines; ++line)
    slurm_error("torch-env: %s", visible_line(take_until(text, '\n'), kMaxLine).c_str());
}

}  // namespace torchbridge
