#include "bridge/binding/numa_mode.h"

#include <algorithm>
#include <map>
#include <utility>

#include "bridge/base/message_text.h"
#include "bridge/binding/visible_gpus.h"

namespace torchbridge {
namespace {

// By NumaMode.
constexpr const char* kNames[] = {"none", "node", "socket", "exclusive", "core-complex"};

// A worker that is to be bound.
struct NumaWorker {
  NumaMode mode;
  const Machine& machine;
  const std::vector<const Gpu*>& gpus;
  std::size_t rank;  // and the index of its GPU

  const Gpu& gpu() const { return *gpus[rank]; }
};

// As torch does: where there is one node only, the kernel may show none for a GPU.
int node_of(const Gpu& gpu) { return std::max(gpu.numa_node, 0); }

Error binding_error(const NumaWorker& worker, const std::string& text) {
  return Error{formatted("--numa-binding {}: {}", kNames[static_cast<int>(worker.mode)], text)};
}

std::string name_of_gpu(const NumaWorker& worker) {
  return formatted("GPU {} ({})", worker.rank, worker.gpu().address.text());
}

CpuSet allowed_in(const NumaNode& node, const Machine& machine) {
  return machine.cpus.empty() ? node.cpus : intersection(node.cpus, machine.cpus);
}

// Not empty.
Result<CpuSet> cpus_of_node(const NumaWorker& worker) {
  const auto& nodes = worker.machine.topology.nodes;
  const int id = node_of(worker.gpu());
  const auto node = std::ranges::find(nodes, id, &NumaNode::id);
  const std::string where = formatted("{} is on NUMA node {}", name_of_gpu(worker), id);
  if (node == nodes.end())
    return binding_error(
        worker, formatted("{}, which this machine does not show: leave the option out", where));
  CpuSet cpus = allowed_in(*node, worker.machine);
  if (!cpus.empty()) return cpus;
  return binding_error(
      worker, formatted("{} with the CPUs '{}', and this process may use only '{}': allow it CPUs "
                        "of that node, or leave the option out",
                        where, cpu_list_text(node->cpus), cpu_list_text(worker.machine.cpus)));
}

// The group of the CPU; null where it is in none.
const CpuSet* group_of(int cpu, const std::vector<CpuSet>& groups) {
  const auto found = std::ranges::find_if(groups, [&](const CpuSet& group) {
    return std::binary_search(group.begin(), group.end(), cpu);
  });
  return found == groups.end() ? nullptr : &*found;
}

// By the first CPU of each group, also where that is not one of `cpus`; a CPU of no group is one.
std::map<int, CpuSet> by_group(const CpuSet& cpus, const std::vector<CpuSet>& groups) {
  std::map<int, CpuSet> found;
  for (const int cpu : cpus) {
    const CpuSet* group = group_of(cpu, groups);
    found[group != nullptr ? group->front() : cpu].push_back(cpu);
  }
  return found;
}

// Which of the GPUs of its node the worker's is, and how many there are.
std::pair<std::size_t, std::size_t> place_on_node(const NumaWorker& worker) {
  const auto is_here = [&](const Gpu* gpu) { return node_of(*gpu) == node_of(worker.gpu()); };
  const auto own = worker.gpus.begin() + static_cast<std::ptrdiff_t>(worker.rank);
  return {static_cast<std::size_t>(std::count_if(worker.gpus.begin(), own, is_here)),
          static_cast<std::size_t>(std::ranges::count_if(worker.gpus, is_here))};
}

Result<CpuSet> cpus_of_socket(const NumaWorker& worker, const CpuSet& near) {
  const CpuSet* socket = group_of(near.front(), worker.machine.topology.sockets);
  if (socket == nullptr) {
    return binding_error(
        worker,
        formatted("this machine does not show the socket of CPU {}: use --numa-binding node",
                  near.front()));
  }
  CpuSet all;
  for (const NumaNode& node : worker.machine.topology.nodes) {
    const CpuSet cpus = allowed_in(node, worker.machine);
    const bool is_here = !cpus.empty() && std::ranges::binary_search(*socket, cpus.front());
    if (is_here) all.insert(all.end(), cpus.begin(), cpus.end());
  }
  std::ranges::sort(all);
  return all;
}

// The lowest GPUs get one core more where the cores cannot be divided.
Result<CpuSet> own_cores(const NumaWorker& worker, const CpuSet& near) {
  const auto cores = by_group(near, worker.machine.topology.cores);
  const auto [index, count] = place_on_node(worker);
  if (cores.size() < count) {
    return binding_error(
        worker,
        formatted("NUMA node {} has {} for this process, and {} GPUs: use --numa-binding node",
                  node_of(worker.gpu()), counted(std::ssize(cores), "core"), count));
  }
  const std::size_t each = cores.size() / count, rest = cores.size() % count;
  const std::size_t first = index * each + std::min(index, rest),
                    size = each + (index < rest ? 1 : 0);
  CpuSet cpus;
  auto core = std::next(cores.begin(), static_cast<std::ptrdiff_t>(first));
  for (std::size_t i = 0; i < size; ++i, ++core)
    cpus.insert(cpus.end(), core->second.begin(), core->second.end());
  std::ranges::sort(cpus);
  return cpus;
}

Result<CpuSet> own_cache(const NumaWorker& worker, const CpuSet& near) {
  const auto& caches = worker.machine.topology.caches;
  const auto alone =
      std::ranges::find_if(near, [&](int cpu) { return group_of(cpu, caches) == nullptr; });
  if (alone != near.end()) {
    return binding_error(worker, formatted("this machine does not show which CPUs share a cache "
                                           "with CPU {}: use --numa-binding node",
                                           *alone));
  }
  std::vector<CpuSet> here;
  for (auto& [first, cpus] : by_group(near, caches)) here.push_back(cpus);
  std::ranges::stable_sort(here,
                           [](const CpuSet& a, const CpuSet& b) { return a.size() > b.size(); });
  return here[place_on_node(worker).first % here.size()];
}

}  // namespace

Result<std::vector<const Gpu*>> gpus_of_workers(const EnvMap& environment,
                                                const Topology& topology) {
  const auto visible = environment.get("CUDA_VISIBLE_DEVICES");
  if (!visible) return topology.usable_gpus();
  std::vector<const Gpu*> gpus;
  if (visible->empty()) return gpus;
  for (const std::string& name : split_names(*visible)) {
    const Gpu* gpu = topology.gpu_named(name);
    if (gpu == nullptr) {
      return Error{
          formatted("--numa-binding: '{}' of CUDA_VISIBLE_DEVICES is not one of the {} GPUs found "
                    "on this machine: leave the option out",
                    printable(name), topology.usable_gpus().size())};
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

Result<CpuSet> cpus_of_worker(NumaMode mode, const Machine& machine,
                              const std::vector<const Gpu*>& gpus, int local_rank) {
  if (mode == NumaMode::kNone) return machine.cpus;
  const NumaWorker worker{mode, machine, gpus, static_cast<std::size_t>(local_rank)};
  if (worker.rank >= gpus.size()) {
    return binding_error(worker,
                         formatted("local rank {} has no GPU, this node has {}: start no more "
                                   "workers than GPUs (--nproc-per-node), or leave the option out",
                                   local_rank, gpus.size()));
  }
  const auto near = cpus_of_node(worker);
  if (!near || mode == NumaMode::kNode) return near;
  if (mode == NumaMode::kSocket) return cpus_of_socket(worker, *near);
  return mode == NumaMode::kExclusive ? own_cores(worker, *near) : own_cache(worker, *near);
}

}  // namespace torchbridge
