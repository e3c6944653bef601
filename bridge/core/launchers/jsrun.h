// jsrun, the launcher of IBM's Job Step Manager under LSF: the variables of a task.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

bool detect_jsrun(const EnvMap& environment);
// Nodes are not known (LSB_HOSTS lists slots of the job, batch node included, not of the step):
// where there is more than one, the ranks must exchange them.
Result<LaunchFacts> read_jsrun(const EnvMap& environment);

}  // namespace torchbridge
