#include "bridge/binding/binding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bridge/base/message_text.h"
#include "bridge/binding/closest_gpus.h"
#include "bridge/binding/visible_gpus.h"

namespace torchbridge {
namespace {

// The input of the rules, and their results so far.
struct TaskContext {
  const EnvMap& environment;
  const Layout& at;
  const LaunchOptions& options;
  const Machine& machine;
  VisibleGpus visible;
  std::vector<std::string> gpu_of_rank;  // each local rank's GPU; empty: only this task's is known
  std::string gpu;                       // this task's; empty: it has none, or several and no rule

  std::size_t rank() const { return static_cast<std::size_t>(at.local_rank); }
  std::size_t tasks() const { return static_cast<std::size_t>(at.local_world_size); }
};

// By GpuRule.
constexpr const char* kRuleNames[] = {"auto", "all", "virtual", "closest", "share", "none"};

std::string rule_name(GpuRule rule) {
  return std::string("gpus=") + kRuleNames[static_cast<int>(rule)];
}

std::string tasks_here(const TaskContext& task) {
  return formatted("{} tasks on this node", task.tasks());
}

void add_note(Binding& binding, const std::string& note) {
  binding.note += (binding.note.empty() ? "" : "; ") + note;
}

void show(const std::vector<std::string>& names, Binding& binding) {
  binding.variables.emplace_back("CUDA_VISIBLE_DEVICES", joined(names, ","));
}

// The task whose LOCAL_RANK indexes `names`, as all others' do.
void index_by_rank(TaskContext& task, const std::vector<std::string>& names) {
  if (names.size() < task.tasks()) return;
  task.gpu_of_rank.assign(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(task.tasks()));
  task.gpu = names[task.rank()];
}

// By default CUDA numbers the fastest GPU first, while both Slurm and these rules count by PCI
// address.
Status count_by_address(const TaskContext& task, const std::string& rule, Binding& binding) {
  constexpr const char* kName = "CUDA_DEVICE_ORDER";
  constexpr std::string_view kByAddress = "PCI_BUS_ID";
  if (!are_indices(task.visible.names)) return Ok{};
  const auto exported = task.environment.get(kName);
  if (exported == kByAddress) return Ok{};
  if (exported && !task.options.override_user) {
    return Error{
        formatted("{}: CUDA_DEVICE_ORDER='{}' is exported, but GPUs are counted by their PCI "
                  "address: unset it, or give override=yes",
                  rule, printable(*exported))};
  }
  binding.variables.emplace_back(kName, kByAddress);
  return Ok{};
}

Status keep_gpus(TaskContext& task, Binding& binding) {
  const VisibleGpus& visible = task.visible;
  if (visible.names.size() == 1) task.gpu = visible.names.front();
  if (visible.kind == VisibleGpus::Kind::kShared) index_by_rank(task, visible.names);
  if (visible.names.size() >= task.tasks()) {
    if (task.gpu.empty()) task.gpu = visible.names[task.rank()];
    return Ok{};
  }
  if (!binding.note.empty()) return Ok{};  // the note contains the reason already
  add_note(binding, formatted("{}, and each sees {}: programs that use the GPU of number "
                              "LOCAL_RANK will not find it; see gpus=virtual and gpus=all",
                              tasks_here(task), counted(std::ssize(visible.names), "GPU")));
  return Ok{};
}

Status show_all(TaskContext& task, Binding& binding) {
  if (task.visible.kind == VisibleGpus::Kind::kShared) return keep_gpus(task, binding);
  const auto names = step_gpus(task.visible, task.environment, task.at, task.machine.topology);
  if (!names) return Error{formatted("gpus=all: {}", names.error().message)};
  index_by_rank(task, *names);
  show(*names, binding);
  return Ok{};
}

// One GPU for this task. Where there are more tasks than GPUs, neighbouring local ranks get the
// same GPU, as with --ntasks-per-gpu.
Status show_one(TaskContext& task, Binding& binding) {
  const auto& names = task.visible.names;
  const auto gpu_index = [&](std::size_t rank) {
    return names.size() >= task.tasks() ? rank : rank * names.size() / task.tasks();
  };
  if (task.visible.kind == VisibleGpus::Kind::kShared) {
    for (std::size_t rank = 0; rank < task.tasks(); ++rank)
      task.gpu_of_rank.push_back(names[gpu_index(rank)]);
    task.gpu = task.gpu_of_rank[task.rank()];
  } else if (task.visible.kind == VisibleGpus::Kind::kOwn || names.size() == 1) {
    task.gpu = names.front();
  } else if (task.options.gpus == GpuRule::kShare) {
    task.gpu = names[task.rank() % names.size()];
  } else {
    return Error{
        formatted("gpus=virtual: {}, each sees {} of {}, and which of them are its own is not "
                  "known: give gpus=share if several may use one, or another --gpu-bind",
                  tasks_here(task), counted(std::ssize(names), "GPU"), task.visible.on_node)};
  }
  show({task.gpu}, binding);
  binding.variables.emplace_back("LOCAL_RANK", "0");
  return Ok{};
}

// All GPUs are equally far from every CPU, so that there is nothing to select.
bool all_equally_near(const Topology& topology) {
  const auto usable = topology.usable_gpus();
  return std::all_of(usable.begin(), usable.end(), [&](const Gpu* gpu) {
    return gpu->numa_node == usable.front()->numa_node &&
           gpu->local_cpus == usable.front()->local_cpus;
  });
}

Result<std::vector<const Gpu*>> located(const TaskContext& task) {
  const auto usable = task.machine.topology.usable_gpus();
  std::vector<const Gpu*> found;
  for (const auto& name : task.visible.names) {
    const Gpu* gpu = task.machine.topology.gpu_named(name);
    if (gpu == nullptr && !usable.empty() && all_equally_near(task.machine.topology))
      gpu = usable.front();
    if (gpu == nullptr) {
      return Error{
          formatted("gpus=closest: '{}' of CUDA_VISIBLE_DEVICES is not one of the {} found on this "
                    "machine: give gpus=auto",
                    printable(name), counted(std::ssize(usable), "GPU"))};
    }
    found.push_back(gpu);
  }
  return found;
}

std::vector<int> distances_from(const CpuSet& cpus, const std::vector<const Gpu*>& candidates,
                                const Topology& topology) {
  std::vector<int> row;
  for (const Gpu* gpu : candidates) row.push_back(topology.distance(cpus, *gpu));
  return row;
}

Result<std::vector<std::string>> nearest_first(const std::vector<std::string>& names,
                                               const std::vector<int>& distances) {
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Not std::stable_sort, which is 2 kB of the plugin.
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(distances[a], a) < std::pair(distances[b], b);
  });
  std::vector<std::string> sorted;
  for (const std::size_t index : order) sorted.push_back(names[index]);
  return sorted;
}

// The GPUs of the tasks in the order of their ranks, then those that are left: one list for the
// whole node.
Result<std::vector<std::string>> assigned(const TaskContext& task,
                                          const std::vector<const Gpu*>& candidates) {
  if (task.machine.task_cpus.size() != task.tasks()) {
    return Error{formatted(
        "gpus=closest: this task may use CPUs {}, and the CPUs of the other tasks on this node are "
        "not known: bind the tasks with srun --cpu-bind=cores, or give gpus=auto",
        cpu_list_text(task.machine.cpus))};
  }
  std::vector<std::vector<int>> distances;
  for (const CpuSet& set : task.machine.task_cpus)
    distances.push_back(distances_from(set, candidates, task.machine.topology));
  const auto chosen = closest_gpus(distances);
  std::vector<std::string> names;
  for (const std::size_t gpu : chosen) names.push_back(task.visible.names[gpu]);
  for (const auto& name : task.visible.names) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

Status show_closest(TaskContext& task, Binding& binding) {
  if (const auto counted = count_by_address(task, "gpus=closest", binding); !counted)
    return counted;
  const auto candidates = located(task);
  if (!candidates) return candidates.error();
  const bool alone = task.visible.kind != VisibleGpus::Kind::kShared || task.tasks() == 1;
  auto names =
      alone || all_equally_near(task.machine.topology)
          ? nearest_first(task.visible.names,
                          distances_from(task.machine.cpus, *candidates, task.machine.topology))
          : assigned(task, *candidates);
  if (!names) return names.error();
  if (*names != task.visible.names) show(*names, binding);
  task.visible.names = std::move(*names);
  return keep_gpus(task, binding);
}

// An explicit rule is for GPUs, so too few are an error. With gpus=auto the program may use CPUs,
// or share GPUs itself.
Status compare_counts(const TaskContext& task, Binding& binding) {
  const int on_node = task.visible.on_node;
  const GpuRule rule = task.options.gpus;
  if (rule == GpuRule::kShare || on_node == 0 || on_node >= task.at.local_world_size) return Ok{};
  const std::string found = formatted("{} for {}: ", tasks_here(task), counted(on_node, "GPU"));
  const std::string advice =
      "give gpus=share if several may use one, or gpus=none if the program uses none";
  if (rule != GpuRule::kAuto)
    return Error{formatted("{}: {}ask for one GPU a task, {}", rule_name(rule), found, advice)};
  add_note(binding, formatted("{}some have no GPU of number LOCAL_RANK; {}", found, advice));
  return Ok{};
}

// Each task's device cgroup, or a container, hides the others' GPUs. MIG devices may outnumber the
// machine's GPUs.
void note_hidden_gpus(const TaskContext& task, Binding& binding) {
  const auto on_node = static_cast<std::size_t>(task.visible.on_node);
  const auto usable = task.machine.topology.usable_gpus().size();
  if (task.tasks() == 1 || usable == 0 || usable >= on_node ||
      on_node > task.machine.topology.gpus.size())
    return;
  add_note(binding,
           formatted("{}, and each may open {} of the step's {}: NCCL's peer-to-peer access fails "
                     "(NVIDIA/nccl#1948); ask for them with --gpus-per-node={} --gpu-bind=none",
                     tasks_here(task), usable, counted(on_node, "GPU"), on_node));
}

Status bind_gpus(TaskContext& task, Binding& binding) {
  const GpuRule rule = task.options.gpus;
  if (rule != GpuRule::kNone) {
    if (const auto compared = compare_counts(task, binding); !compared) return compared;
    note_hidden_gpus(task, binding);
  }
  if (task.visible.names.empty()) {
    // Slurm counts GPUs that it does not name, and the machine has more than those.
    const auto usable = task.machine.topology.usable_gpus().size();
    const bool unclear = task.visible.on_node > 0 && usable > 0;
    if (!unclear || rule == GpuRule::kAuto || rule == GpuRule::kNone) return Ok{};
    return Error{
        formatted("{}: CUDA_VISIBLE_DEVICES is not set, the step has {} on this node, and the task "
                  "may open {}: leave --gpu-bind=none out",
                  rule_name(rule), counted(task.visible.on_node, "GPU"), usable)};
  }
  switch (rule) {
    case GpuRule::kAll:
      return show_all(task, binding);
    case GpuRule::kVirtual:
    case GpuRule::kShare:
      return show_one(task, binding);
    case GpuRule::kClosest:
      return show_closest(task, binding);
    case GpuRule::kAuto:
      return keep_gpus(task, binding);
    case GpuRule::kNone:
      break;
  }
  Binding unused;  // keep_gpus is called for task.gpu alone
  return keep_gpus(task, unused);
}

// This task's index among the tasks of the node that would get the very same CPUs, and the number
// of those tasks.
std::pair<std::size_t, std::size_t> index_among_equals(const TaskContext& task,
                                                       const CpuSet& cpus) {
  const Topology& topology = task.machine.topology;
  const auto& masks = task.machine.task_cpus;
  std::size_t before = 0, count = 0;
  if (masks.size() != task.tasks() || task.gpu_of_rank.size() != task.tasks()) return {0, 1};
  for (std::size_t rank = 0; rank < task.tasks(); ++rank) {
    const Gpu* gpu = topology.gpu_named(task.gpu_of_rank[rank]);
    if (gpu == nullptr || intersection(topology.cpus_near(*gpu), masks[rank]) != cpus) continue;
    if (rank < task.rank()) ++before;
    ++count;
  }
  return {before, std::max<std::size_t>(count, 1)};
}

Status bind_cpus(const TaskContext& task, Binding& binding) {
  if (task.options.cpus != CpuRule::kGpu || task.gpu.empty()) return Ok{};
  const auto named = [](const Variable& variable) { return variable.first == "CUDA_DEVICE_ORDER"; };
  if (std::none_of(binding.variables.begin(), binding.variables.end(), named)) {
    if (const auto counted = count_by_address(task, "cpus=gpu", binding); !counted) return counted;
  }
  const Topology& topology = task.machine.topology;
  const Gpu* gpu = topology.gpu_named(task.gpu);
  const CpuSet near = gpu == nullptr ? CpuSet() : topology.cpus_near(*gpu);
  if (near.empty()) {
    add_note(binding, formatted("cpus=gpu: the CPUs near GPU {} are not known on this machine: the "
                                "task keeps its CPUs",
                                printable(task.gpu)));
    return Ok{};
  }
  const CpuSet allowed = intersection(near, task.machine.cpus);
  if (allowed.empty()) {
    add_note(binding,
             formatted("cpus=gpu: CPUs {} are near GPU {}, but this task may use {} only: the task "
                       "keeps its CPUs; see gpus=closest",
                       cpu_list_text(near), printable(task.gpu), cpu_list_text(task.machine.cpus)));
    return Ok{};
  }
  const auto [index, count] = index_among_equals(task, allowed);
  binding.cpus = part_of(allowed, topology.cores, index, count);
  if (topology.nodes.size() > 1) binding.memory_node = gpu->numa_node;
  return Ok{};
}

void bind_threads(const EnvMap& environment, const Layout& layout, const LaunchOptions& options,
                  Binding& binding) {
  if (options.omp.kind == OmpRule::Kind::kKeep) return;
  if (environment.has("OMP_NUM_THREADS") && !options.override_user) return;
  std::string threads;
  if (options.omp.kind == OmpRule::Kind::kNumber) threads = std::to_string(options.omp.number);
  if (options.omp.kind == OmpRule::Kind::kCpus)
    threads = environment.get("SLURM_CPUS_PER_TASK").value_or("1");
  if (options.omp.kind == OmpRule::Kind::kTorchrun && layout.local_world_size > 1) threads = "1";
  if (!threads.empty()) binding.variables.emplace_back("OMP_NUM_THREADS", threads);
}

}  // namespace

bool needs_machine(const LaunchOptions& options) {
  return options.cpus == CpuRule::kGpu ||
         (options.gpus != GpuRule::kAuto && options.gpus != GpuRule::kNone);
}

bool notes_need_machine(const EnvMap& environment, const Layout& layout,
                        const LaunchOptions& options) {
  if (options.gpus != GpuRule::kAuto || layout.local_rank != 0 || layout.local_world_size == 1)
    return false;
  const auto visible = visible_gpus(environment, layout, {});
  return visible && !visible->names.empty() &&
         static_cast<int>(visible->names.size()) < visible->on_node;
}

Result<Binding> binding_of(const EnvMap& environment, const Layout& layout,
                           const LaunchOptions& options, const Machine& machine) {
  Binding binding;
  if (options.gpus != GpuRule::kNone || options.cpus != CpuRule::kKeep) {
    auto visible = visible_gpus(environment, layout, machine.topology);
    if (!visible) return visible.error();
    TaskContext task{environment, layout, options, machine, std::move(*visible), {}, {}};
    if (const auto bound = bind_gpus(task, binding); !bound) return bound.error();
    if (const auto bound = bind_cpus(task, binding); !bound) return bound.error();
  }
  bind_threads(environment, layout, options, binding);
  return binding;
}

}  // namespace torchbridge
