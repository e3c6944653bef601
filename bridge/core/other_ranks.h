// Signs that a process without a launcher's variables is one of several, of which each would take
// itself for the only rank.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// What a process is without a launcher: the only rank, or the agent of a run on one node.
enum class Alone { kRank, kAgent };

// Of a batch script, or of the shell of salloc: "job 12 of Slurm has 4 tasks on 2 nodes"; or
// nothing. An agent starts the ranks of its node itself, so its job is larger with more nodes
// alone.
std::string larger_job(const EnvMap& environment, Alone alone);

// Whether the launcher that has started `tasks` of these processes (0: none has) knows on which
// node each of them is: then rank 0 cannot be behind an address that its node does not have.
bool has_placed_ranks(int tasks, const EnvMap& environment);

// A line for the user, with the first sign and what to do; empty where there is none. An error
// where a variable of an unknown launcher says that there are other ranks. `ancestors`: the names
// of the processes above this one. REQUIRES: no launcher is recognised.
Result<std::string> sign_of_other_ranks(const EnvMap& environment,
                                        const std::vector<std::string>& ancestors, Alone alone);

}  // namespace torchbridge
