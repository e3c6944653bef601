#include "bridge/agent/worker_count.h"

#include <algorithm>

#include "bridge/binding/visible_gpus.h"

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

Result<int> worker_count(const WorkersPerNode& workers, bool is_whole_node,
                         const EnvMap& environment, const Machine& machine) {
  using Kind = WorkersPerNode::Kind;
  Kind kind = workers.kind;
  if (kind == Kind::kByLaunch && is_whole_node) kind = Kind::kAuto;
  if (kind == Kind::kByLaunch) return 1;
  if (kind == Kind::kNumber) return workers.number;
  const int gpus = kind == Kind::kCpu ? 0 : gpu_count(environment, machine);
  if (gpus > 0) return gpus;
  if (kind == Kind::kGpu)
    return Error{
        "--nproc-per-node gpu: this process sees no GPU; start with a number of workers, or with "
        "cpu"};
  return std::max(1, static_cast<int>(machine.cpus.size()));
}

}  // namespace torchbridge
