// What `explain` prints: the node and devices of each rank, the addresses, and the reasons.
#pragma once

#include <string>
#include <vector>

#include "bridge/core/launch_options.h"
#include "bridge/core/task_map.h"
#include "bridge/core/torch_env.h"
#include "bridge/host/small_memory.h"

namespace torchbridge {

// Facts that only processes on the node know. Empty texts are shown as "-".
struct NodeFacts {
  // CUDA_VISIBLE_DEVICES of the programs; "0 / 1" where local ranks 0 and 1 differ.
  std::string gpus;
  std::string cpus;       // the CPUs that they may run on, "0-7", or "0-3 / 4-7"
  std::string interface;  // towards rank 0's node
  SmallMemory small;      // what gloo and NCCL will lack there
  // Of a node: CUDA_VISIBLE_DEVICES of each local rank.
  std::vector<std::string> gpus_of_rank = {};

  // The node's facts from those of its tasks, by local rank. REQUIRES: `tasks` is not empty.
  static NodeFacts of_tasks(const std::vector<NodeFacts>& tasks);

  // As one line, and back; any other text gives empty facts.
  std::string text() const;
  static NodeFacts from(const std::string& text);

  bool operator==(const NodeFacts&) const = default;
};

// Whether the user exported MASTER_ADDR and MASTER_PORT, which then replace options.addr and
// options.port.
struct ExportedMaster {
  bool host = false, port = false;
};

// The ranks of each node in ascending order, by the numbering that is used; empty for nodes whose
// ranks are not known.
std::vector<std::vector<int>> ranks_by_node(const TaskMap& map, RankRule rule);

// "8 ranks on 4 nodes, started by slurm as run slurm-12.0".
std::string layout_title(const LaunchFacts& facts, const TaskMap& map, const TorchEnv& env);

// The table. `nodes` has one entry a node. Equal neighbours are one row, and rows after the 64th
// are only counted, so the text stays short for any number of nodes. Ends with a newline.
std::string explain(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                    ExportedMaster exported, const TorchEnv& env,
                    const std::vector<NodeFacts>& nodes);

}  // namespace torchbridge
