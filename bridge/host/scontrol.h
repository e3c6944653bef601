// Slurm's scontrol: what Slurm's controller knows of jobs, steps and nodes.
#pragma once

#include <string>

#include "bridge/base/result.h"

namespace torchbridge {

// The output of `scontrol ARGUMENTS`, which are for a shell, and hold letters, digits, blanks and
// "-_.:" alone. Waits at most some seconds for the controller.
Result<std::string> scontrol(const std::string& arguments);

// The value of "NAME=value" between blanks of a line of --oneliner; or empty.
std::string scontrol_field(const std::string& line, const std::string& name);

// The NodeAddr of a node; empty where it is not known.
std::string node_addr_by_scontrol(const std::string& node);

}  // namespace torchbridge
