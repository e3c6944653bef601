// Ranks that a launcher placed one by one tell each other where they are.
#pragma once

#include <chrono>

#include "bridge/core/launch_facts.h"
#include "bridge/base/result.h"

namespace torchbridge {

// True where every rank finds that the node of rank 0 is not told: --distribution=arbitrary in an ordinary step of
// Slurm. In steps of several components some ranks find it and others do not, so that they cannot ask each other.
bool can_ask_for_placement(const LaunchFacts& facts);

// Collective: all ranks meet on the first node at the port of ranks=block, before anybody has taken it, and
// facts.node_of_rank is complete then. Waits for the others at most the timeout.
Status ask_for_placement(LaunchFacts& facts, std::chrono::milliseconds timeout);

}  // namespace torchbridge
