#include "bridge/agent/worker_count.h"

#include <algorithm>

#include "bridge/binding/visible_gpus.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {
namespace {

int gpu_count(const EnvMap& environment, const Machine& machine) {
  const auto visible = environment.get("CUDA_VISIBLE_DEVICES");
  if (!visible) return static_cast<int>(machine.topology.usable_gpus().size());
  if (visible->empty()) return 0;
  // CUDA ignores a name that is none, and all after it.
  const auto names = split_names(*visible);
  const auto end = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.empty() || name == "-1" || name == "NoDevFiles";
  });
  return static_cast<int>(end - names.begin());
}

}  // namespace

Result<int> worker_count(const std::string& nproc_per_node, bool is_whole_node, const EnvMap& environment,
                         const Machine& machine) {
  if (nproc_per_node.empty()) {
    return is_whole_node ? worker_count("auto", is_whole_node, environment, machine) : Result<int>(1);
  }
  if (const auto number = parse_integer(nproc_per_node, 1, kMaxRanks)) return static_cast<int>(*number);
  const std::string option = "--nproc-per-node " + printable(nproc_per_node) + ": ";
  const int gpus = gpu_count(environment, machine);
  if (nproc_per_node == "gpu") {
    if (gpus == 0) return Error{option + "this process sees no GPU; start with a number of workers, or with cpu"};
    return gpus;
  }
  if (nproc_per_node == "auto" && gpus > 0) return gpus;
  if (nproc_per_node == "auto" || nproc_per_node == "cpu") return std::max(1, static_cast<int>(machine.cpus.size()));
  return Error{option + "expected a number, auto, cpu or gpu"};
}

}  // namespace torchbridge
