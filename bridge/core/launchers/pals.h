// PALS, the mpiexec and aprun of HPE Cray systems: the variables of a process, and the file of
// PALS_APINFO.
#pragma once

#include <string>
#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

bool detect_pals(const EnvMap& environment);
// Where there is more than one node, the others are in the file that PALS_APINFO names. So is the
// number of ranks where PMI_SIZE is not set, as with another PMI than PALS's own: world_size is 0
// then.
Result<LaunchFacts> read_pals(const EnvMap& environment);

// Completes the facts of read_pals by the content of the file: the number of ranks, the names of
// the nodes that hold ranks, and the node of every rank. An error where the file is damaged, of an
// unknown layout, or contradicts the variables; `facts` is then unchanged. REQUIRES: the bytes were
// written on this machine or one of its kind (integers are not converted).
Status add_pals_apinfo(LaunchFacts& facts, std::string_view content);

}  // namespace torchbridge
