// The picture that `torchbridge explain --svg` prints.
#pragma once

#include <string>
#include <vector>

#include "bridge/step/explain.h"

namespace torchbridge {

// As explain(), but one SVG image of its own: a row for each node, a box for each rank with its
// GPU. Nodes after the 256th, and ranks of a node after the 32nd, are only counted.
std::string explain_svg(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                        ExportedMaster exported, const TorchEnv& env,
                        const std::vector<NodeFacts>& nodes);

}  // namespace torchbridge
