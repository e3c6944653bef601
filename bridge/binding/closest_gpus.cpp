#include "bridge/binding/closest_gpus.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "bridge/binding/visible_gpus.h"

namespace torchbridge {
namespace {

// Distance first, then the lower GPUs, then ranks and GPUs in the same order: the sum of squares is
// least where both agree. The weights leave room for kMaxGpus of each.
std::int64_t cost(int distance, std::size_t task, std::size_t gpu) {
  constexpr std::int64_t kGpuWeight = std::int64_t{1} << 24,
                         kDistanceWeight = std::int64_t{1} << 41;
  const auto at = static_cast<std::int64_t>(gpu), shift = at - static_cast<std::int64_t>(task);
  return distance * kDistanceWeight + at * kGpuWeight + shift * shift;
}

// The mask of one entry of SLURM_CPU_BIND_LIST; an entry that is none is no error here, only
// unknown.
std::optional<CpuSet> bound_cpus(std::string_view type, std::string_view entry) {
  if (type.starts_with("mask_cpu")) {
    auto mask = parse_cpu_mask(entry);
    return mask ? std::optional<CpuSet>(std::move(*mask)) : std::nullopt;
  }
  if (!type.starts_with("map_cpu")) return std::nullopt;
  const auto cpu = parse_integer(entry, 0, kMaxCpu);
  return cpu ? std::optional<CpuSet>(CpuSet{static_cast<int>(*cpu)}) : std::nullopt;
}

// srun repeats a list that is shorter than the tasks of a node.
std::vector<CpuSet> listed_cpus(std::string_view type, std::string_view list, std::size_t tasks) {
  const auto entries = split_names(list);
  std::vector<CpuSet> all;
  for (std::size_t task = 0; task < tasks; ++task) {
    auto cpus = bound_cpus(type, entries[task % entries.size()]);
    if (!cpus) return {};
    all.push_back(std::move(*cpus));
  }
  return all;
}

}  // namespace

// The Hungarian method with potentials, one task after the other; rows and columns count from 1, 0
// is "none".
std::vector<std::size_t> closest_gpus(const std::vector<std::vector<int>>& distances) {
  constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();
  const std::size_t tasks = distances.size(), gpus = tasks == 0 ? 0 : distances.front().size();
  std::vector<std::int64_t> task_potential(tasks + 1), gpu_potential(gpus + 1);
  std::vector<std::size_t> task_of(gpus + 1), way(gpus + 1);
  for (std::size_t task = 1; task <= tasks; ++task) {
    std::vector<std::int64_t> slack(gpus + 1, kInfinite);
    std::vector<bool> reached(gpus + 1);
    std::size_t at = 0;
    task_of[0] = task;
    do {
      reached[at] = true;
      const std::size_t row = task_of[at];
      std::int64_t least = kInfinite;
      std::size_t next = 0;
      for (std::size_t gpu = 1; gpu <= gpus; ++gpu) {
        if (reached[gpu]) continue;
        const std::int64_t reduced = cost(distances[row - 1][gpu - 1], row - 1, gpu - 1) -
                                     task_potential[row] - gpu_potential[gpu];
        if (reduced < slack[gpu]) slack[gpu] = reduced, way[gpu] = at;
        if (slack[gpu] < least) least = slack[gpu], next = gpu;
      }
      for (std::size_t gpu = 0; gpu <= gpus; ++gpu) {
        if (reached[gpu])
          task_potential[task_of[gpu]] += least, gpu_potential[gpu] -= least;
        else if (slack[gpu] != kInfinite)
          slack[gpu] -= least;
      }
      at = next;
    } while (task_of[at] != 0);
    for (; at != 0; at = way[at]) task_of[at] = task_of[way[at]];
  }
  std::vector<std::size_t> gpu_of(tasks);
  for (std::size_t gpu = 1; gpu <= gpus; ++gpu) {
    if (task_of[gpu] != 0) gpu_of[task_of[gpu] - 1] = gpu - 1;
  }
  return gpu_of;
}

std::vector<CpuSet> slurm_task_cpus(const EnvMap& environment, const Layout& layout,
                                    const CpuSet& own) {
  const auto tasks = static_cast<std::size_t>(layout.local_world_size);
  if (own.empty()) return {};
  const auto type = environment.get("SLURM_CPU_BIND_TYPE").value_or("");
  if (type.empty() || type == "none") return std::vector<CpuSet>(tasks, own);
  auto listed = listed_cpus(type, environment.get("SLURM_CPU_BIND_LIST").value_or(""), tasks);
  // The kernel takes CPUs off a mask that the job does not have, and adds none.
  if (!listed.empty() &&
      intersection(listed[static_cast<std::size_t>(layout.local_rank)], own) != own)
    return {};
  return listed;
}

}  // namespace torchbridge
