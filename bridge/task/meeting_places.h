// Where the nodes of a step meet when rank 0 cannot listen on MASTER_ADDR and MASTER_PORT.
#pragma once

#include <vector>

#include <torchbridge/core/endpoint.h>
#include <torchbridge/core/launcher.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/task_map.h>

namespace torchbridge {

// The same on all nodes: the address that the name of rank 0's node has, with a few ports that the launcher reserved for the step, that are within
// port=LO-HI, or that follow from the step's id. Numeric; empty where the name has no address. Asks the resolver.
std::vector<Endpoint> other_meeting_places(const LaunchFacts& facts, const TaskMap& map, const Options& options);

}  // namespace torchbridge
