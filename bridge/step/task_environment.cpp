#include "bridge/step/task_environment.h"

#include <unistd.h>

#include <algorithm>
#include <climits>

#include "bridge/base/message_text.h"
#include "bridge/binding/binding.h"
#include "bridge/binding/closest_gpus.h"
#include "bridge/bootstrap/all_gather.h"
#include "bridge/core/agent_command.h"
#include "bridge/core/exported_values.h"
#include "bridge/core/user_values.h"
#include "bridge/host/cpu_affinity.h"
#include "bridge/host/read_machine.h"
#include "bridge/net/address.h"
#include "bridge/net/interface_values.h"
#include "bridge/step/error_file.h"

namespace torchbridge {
namespace {

// Other tasks may not have the error.
Error only_here(const Error& error) { return {.message = error.message, .only_here = true}; }

// Interface names may differ between nodes; a program on one node needs none. Without a name gloo
// takes the address of the host's own name, which is 127.0.1.1 on Debian. NCCL finds its interfaces
// itself, also those of other fabrics, so it gets only the user's; without the '=', "eth1" would
// match eth10 too.
Status add_interface(const StepPlan& plan, const LaunchOptions& options,
                     std::vector<Variable>& variables) {
  using Kind = InterfaceRule::Kind;
  if (options.iface.kind == Kind::kNone ||
      (options.iface.kind == Kind::kAuto && plan.env.layout.node_count == 1))
    return Ok{};
  const auto master = numeric_address(plan.env.master.host, plan.names);
  const std::string name = options.iface.kind == Kind::kName ? options.iface.name
                           : master                          ? interface_towards(*master)
                                                             : "";
  if (name.empty() || (options.iface.kind == Kind::kAuto && name == "lo")) return Ok{};
  if (options.iface.kind == Kind::kName) {
    const auto usable = check_interface(formatted("iface={}", name), name,
                                        usable_interfaces(plan.env.layout.node_count > 1));
    if (!usable) return usable;
  }
  variables.emplace_back("GLOO_SOCKET_IFNAME", name);
  if (options.iface.kind == Kind::kName) variables.emplace_back("NCCL_SOCKET_IFNAME", "=" + name);
  return Ok{};
}

// Over several nodes the others would wait for a rank that listens where they cannot reach it; on
// one node gloo names such an interface itself, at once.
Status check_interfaces_of(const EnvMap& complete, const Layout& at) {
  if (at.node_count == 1) return Ok{};
  const auto usable = check_interface_variables(complete, usable_interfaces(true));
  return usable ? usable
                : Status(Error{formatted("{}, or give override=yes", usable.error().message)});
}

bool has_any(const std::vector<EnvMap>& torchruns, const char* option) {
  return std::ranges::any_of(torchruns, [&](const EnvMap& own) { return own.has(option); });
}

// PET_* are the defaults of the agent's options. With several tasks on a node, each agent would
// start a full set of workers. torchrun takes PET_RDZV_ENDPOINT before --master-addr and
// --master-port, and agents of two steps, which a user's address may lead together, have neither
// one id nor one port by the step. Several agents in an only task each take a free port; a
// MASTER_ADDR exported around it may be another node's.
void add_agent_defaults(const StepPlan& plan, const EnvMap& environment,
                        const std::vector<EnvMap>& torchruns, std::vector<Variable>& variables) {
  const Layout& at = plan.env.layout;
  if (torchruns.empty() || at.world_size != at.node_count) return;
  const auto says = [&](const char* option, const char* variable) {
    return has_any(torchruns, option) ||
           (!environment.get(variable).value_or("").empty() && !plan.options.override_user);
  };
  const bool has_address =
      says("--master-addr", "PET_MASTER_ADDR") || says("--rdzv-endpoint", "PET_RDZV_ENDPOINT");
  const bool is_free = !has_address && !says("--master-port", "PET_MASTER_PORT");
  const bool may_be_elsewhere = at.world_size == 1 && plan.exported.host;
  const bool is_alone =
      (may_be_elsewhere || (at.world_size == 1 && plan.options.port.automatic())) &&
      !says("--rdzv-backend", "PET_RDZV_BACKEND");
  const std::string& host = plan.env.master.host;
  variables.emplace_back("PET_NNODES", std::to_string(at.node_count));
  variables.emplace_back("PET_NODE_RANK", std::to_string(at.rank));  // 0 is where the store is
  if (is_free) variables.emplace_back("PET_RDZV_ID", plan.env.run_id);
  if (is_free && is_alone) {
    variables.emplace_back("PET_RDZV_BACKEND", "c10d");
    variables.emplace_back("PET_RDZV_ENDPOINT", "localhost:0");
    // Its workers are all beside it, maybe in a container that has not the node's address.
    if (!may_be_elsewhere) variables.emplace_back("PET_LOCAL_ADDR", "127.0.0.1");
  } else if (!may_be_elsewhere) {
    if (is_free) variables.emplace_back("PET_RDZV_ENDPOINT", with_port(plan.env.master));
    variables.emplace_back("PET_MASTER_ADDR", host);
    if (!has_address)
      variables.emplace_back("PET_MASTER_PORT", std::to_string(plan.env.master.port));
  }
  const bool has_gpus = !environment.get("CUDA_VISIBLE_DEVICES").value_or("").empty();
  if (has_gpus) variables.emplace_back("PET_NPROC_PER_NODE", "gpu");
}

std::string summary_of(const StepPlan& plan) {
  constexpr std::size_t kShown = 16;
  const auto& tasks_per_node = plan.map.tasks_per_node();
  const auto& reserved = plan.facts.reserved_ports;
  const bool is_reserved = std::ranges::find(reserved, plan.env.master.port) != reserved.end();
  std::string counts;
  for (std::size_t node = 0; node < std::min(kShown, tasks_per_node.size()); ++node) {
    counts += (node == 0 ? "" : ",") + std::to_string(tasks_per_node[node]);
  }
  if (tasks_per_node.size() > kShown) counts += ",...";
  return formatted("{} ranks on {} nodes ({}), MASTER_ADDR={} MASTER_PORT={}{}, run {}",
                   plan.map.world_size(), plan.map.node_count(), counts, plan.env.master.host,
                   plan.env.master.port, is_reserved ? " (reserved for the step)" : "",
                   plan.env.run_id);
}

// Empty where the launcher numbers the node's ranks as torchrun does: RANK = the node's base +
// LOCAL_RANK.
std::string note_on_base(const TaskMap& map, int node) {
  const int base = map.ranks_before(node);
  // Of RANK - LOCAL_RANK, which does not decrease over the ranks of a node.
  int low = INT_MAX, high = 0;
  for (int rank = 0; rank < map.world_size(); ++rank) {
    if (!map.knows(rank) || map.node_of(rank) != node) continue;
    low = std::min(low, rank - map.local_rank_of(rank));
    high = rank - map.local_rank_of(rank);
  }
  if (low == base && high == base) return "";
  const std::string found = low == high ? formatted("{}, not the", low)
                                        : formatted("{} to {}, not always the", low, high);
  return formatted(
      "node {}: RANK - LOCAL_RANK is {} node's base {}: programs that build device meshes node by "
      "node need ranks=block",
      node, found, base);
}

// Whether this node may have another number of tasks or GPUs than that of rank 0, which speaks for
// all nodes that are like its own: --gpus=N alone gives nodes different numbers.
bool is_unlike_first_node(const StepPlan& plan, const EnvMap& environment) {
  const auto& tasks = plan.map.tasks_per_node();
  const bool has_uneven_gpus =
      environment.has("SLURM_GPUS") && !environment.has("SLURM_GPUS_PER_NODE");
  return plan.env.layout.node_rank != plan.master_node &&
         (has_uneven_gpus || tasks[plan.env.layout.node_rank] != tasks[plan.master_node]);
}

// Several agents of a node have no defaults, and each would run a job of its own.
bool are_agents_apart(const Layout& at, const std::vector<EnvMap>& torchruns) {
  return at.world_size != at.node_count && std::ranges::any_of(torchruns, [](const EnvMap& own) {
           return !own.has("--nnodes") && !own.has("--master-addr") && !own.has("--rdzv-endpoint");
         });
}

std::vector<std::string> notes_of(const StepPlan& plan, const LaunchOptions& options,
                                  const EnvMap& environment, const Binding& binding,
                                  const Torchruns& torchruns) {
  std::vector<std::string> notes;
  const Layout& at = plan.env.layout;
  if (at.rank == 0 && are_agents_apart(at, torchruns.of_nodes))
    notes.push_back(
        formatted("{} tasks each run a torchrun of their own: give --ntasks-per-node=1, or "
                  "--standalone",
                  at.world_size));
  if (at.rank == 0 && at.world_size == at.node_count && at.node_count > 1 &&
      torchruns.has_one_alone && !torchruns.of_nodes.empty())
    notes.push_back("torchrun of one node beside that of all: give it --standalone --nnodes=1");
  if (!binding.note.empty() && at.rank == 0) notes.push_back(binding.note);
  if (!binding.note.empty() && at.local_rank == 0 && is_unlike_first_node(plan, environment))
    notes.push_back(formatted("on {}: {}", host_name(), binding.note));
  if (options.verbose && at.rank == 0) notes.push_back(summary_of(plan));
  if (options.verbose && at.local_rank == 0 && options.ranks != RankRule::kBlock) {
    const auto note = note_on_base(plan.map, at.node_rank);
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

// The CPUs of each task of this node, for the rules that divide a node among its tasks. From
// Slurm's variables; under other launchers the tasks exchange them.
Result<std::vector<CpuSet>> cpus_of_tasks(const StepPlan& plan, const EnvMap& environment,
                                          const LaunchOptions& options, const CpuSet& own) {
  constexpr std::chrono::seconds kTimeout{60};
  const Layout& at = plan.env.layout;
  if (plan.facts.launcher == "slurm") return slurm_task_cpus(environment, at, own);
  const bool divides = options.gpus == GpuRule::kClosest || options.cpus == CpuRule::kGpu;
  if (!divides || own.empty()) return std::vector<CpuSet>();
  const BootstrapGroup node{.job = plan.env.run_id + "/cpus",
                            .secret = group_secret(plan.token),
                            .rank = at.local_rank,
                            .size = at.local_world_size,
                            .node_key = plan.env.run_id + "/cpus/" + std::to_string(at.node_rank),
                            .local_rank = at.local_rank,
                            .local_size = at.local_world_size};
  const auto lists = all_gather(node, cpu_list_text(own), kTimeout);
  if (!lists) return lists.error();
  std::vector<CpuSet> sets;
  for (const auto& list : lists->values) {
    auto set = parse_cpu_list(list);
    if (!set) return set.error();
    sets.push_back(std::move(*set));
  }
  return sets;
}

// The folder's name follows from the user's id, so that another user of the node can take it.
std::string note_on_error_files(const Error& error) {
  return formatted(
      "{}: the tasks of {} have no error file, and their failures no reason: remove it, or export "
      "TORCHELASTIC_ERROR_FILE",
      error.message, host_name());
}

}  // namespace

Result<TaskEnvironment> task_environment(const StepPlan& plan, const EnvMap& environment,
                                         const Socket& reserved_port,
                                         const std::vector<std::string>& program) {
  const LaunchOptions& options = plan.options;
  if (const auto checked = check_exported(environment, options.override_user); !checked)
    return checked.error();
  auto computed = variables_of(plan.env);
  if (!options.elastic)
    std::erase_if(computed, [](const Variable& v) { return v.first.starts_with("TORCHELASTIC_"); });
  if (const auto added = add_interface(plan, options, computed); !added)
    return only_here(added.error());
  const auto torchruns = torchruns_in(program);
  add_agent_defaults(plan, environment, torchruns.of_nodes, computed);
  auto variables =
      variables_to_set(computed, environment, options.override_user, is_agent(program));
  if (!variables) return only_here(variables.error());
  const auto usable = check_interfaces_of(with_variables(environment, *variables), plan.env.layout);
  if (!usable) return only_here(usable.error());
  const bool is_needed = needs_machine(options);
  const bool is_read = is_needed || notes_need_machine(environment, plan.env.layout, options);
  auto machine = is_read ? read_machine() : Machine();
  if (!machine && is_needed) return only_here(machine.error());
  if (!machine) machine = Machine();
  auto task_cpus = cpus_of_tasks(plan, environment, options, machine->cpus);
  if (!task_cpus) return only_here(task_cpus.error());
  machine->task_cpus = std::move(*task_cpus);
  const auto binding = binding_of(environment, plan.env.layout, options, *machine);
  if (!binding) return only_here(binding.error());
  if (const auto placed = set_affinity(binding->cpus, binding->memory_node); !placed)
    return only_here(placed.error());

  TaskEnvironment task{std::move(*variables),
                       notes_of(plan, options, environment, *binding, torchruns)};
  task.variables.insert(task.variables.end(), binding->variables.begin(), binding->variables.end());
  if (reserved_port.open())
    task.variables.emplace_back("TORCHBRIDGE_LISTEN_FD",
                                std::to_string(reserved_port.descriptor()));
  if (environment.has("TORCHELASTIC_ERROR_FILE") && !options.override_user) return task;
  if (!options.elastic) return task;
  // A single process without a launcher shares its run id with all others of its kind.
  const std::string run = plan.facts.launcher == "none"
                              ? plan.env.run_id + "-" + std::to_string(getpid())
                              : plan.env.run_id;
  const auto file = error_file_in("/tmp", run, plan.env.restart_count, plan.env.layout.rank);
  if (file) task.variables.emplace_back("TORCHELASTIC_ERROR_FILE", *file);
  // Without a safe folder the program runs without an error file.
  if (!file && plan.env.layout.local_rank == 0)
    task.notes.push_back(note_on_error_files(file.error()));
  return task;
}

}  // namespace torchbridge
