// Options of srun's own by which a user has decided what a failed task does to the step.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"

namespace torchbridge {

// Whether the step's end is Slurm's affair alone: --no-kill, or --kill-on-bad-exit with whatever
// value, or their variables; also in a group of short options (-lK0). `command_line`: srun's.
// `program`: the program's name and arguments, as Slurm gives them; they are not taken for srun's
// options. Where it is not the end of the command line, as where that is empty because it cannot be
// read, the options are not known, and the user has decided. In a heterogeneous step, of whose
// components Slurm gives one program, these options decide anywhere in the command line, also among
// a program's arguments.
bool has_decided_on_failures(const std::vector<std::string>& command_line,
                             const std::vector<std::string>& program, const EnvMap& environment);

}  // namespace torchbridge
