// The ranks exchange their nodes where the launcher placed them one by one
// (--distribution=arbitrary).
#pragma once

#include <chrono>
#include <string>

#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// True where every rank finds that the node of rank 0 is not known: --distribution=arbitrary in an
// ordinary step of Slurm. In steps of several components some ranks find it and others do not, so
// they cannot take part in an exchange.
bool can_exchange_placement(const LaunchFacts& facts);

// Collective: all ranks connect to the first node at the port of ranks=block, which no program uses
// yet. Completes facts.node_of_rank. Waits for the others at most `timeout`. Without a token
// another user could answer in their place.
Status exchange_placement(LaunchFacts& facts, const std::string& token,
                          std::chrono::milliseconds timeout);

}  // namespace torchbridge
