// Options of srun's own by which a user has decided what a failed task does to the step.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"

namespace torchbridge {

// Whether the step's end is Slurm's affair alone: --no-kill, or --kill-on-bad-exit with whatever
// value, or their variables; also as one of several letters in a word (-lK0). `command_line`:
// srun's. `program`: the program's name and arguments, as Slurm gives them; they are not taken for
// srun's options. Where it is not the end of the command line, as where that is empty because it
// cannot be read, the options are not known, and the user has decided. Where srun has several
// components, whose programs it does not give, such a word decides wherever it is, also as an
// argument of a program.
bool has_decided_on_failures(const std::vector<std::string>& command_line,
                             const std::vector<std::string>& program, const EnvMap& environment);

}  // namespace torchbridge
