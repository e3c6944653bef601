// The table that `explain` prints: which rank runs where, with what, and why.
#pragma once

#include <string>
#include <vector>

#include "bridge/core/launch_options.h"
#include "bridge/core/task_map.h"
#include "bridge/core/torch_env.h"

namespace torchbridge {

// What only processes on the node can tell. Empty texts are shown as "-".
struct NodeFacts {
  std::string gpus;       // CUDA_VISIBLE_DEVICES that the programs will find; "0 / 1" where local ranks 0 and 1 differ
  std::string cpus;       // on which they may run, "0-7", or "0-3 / 4-7"
  std::string interface;  // towards rank 0's node

  // The node's, from what each of its tasks has, by local rank; never empty.
  static NodeFacts of_tasks(const std::vector<NodeFacts>& tasks);

  // One line, and back; anything else gives empty facts.
  std::string text() const;
  static NodeFacts from(const std::string& text);

  bool operator==(const NodeFacts&) const = default;
};

// Whether the user exported MASTER_ADDR and MASTER_PORT, which then take the place of options.addr and options.port.
struct ExportedMaster {
  bool host = false, port = false;
};

// `nodes` has one entry a node. Neighbours that are alike share a row, and
// what is beyond 64 rows is counted, so the text stays short for any number of nodes. Ends with a newline.
std::string explain(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options, ExportedMaster exported,
                    const TorchEnv& env, const std::vector<NodeFacts>& nodes);

}  // namespace torchbridge
