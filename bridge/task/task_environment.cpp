#include <torchbridge/task/task_environment.h>

#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include <torchbridge/bootstrap/all_gather.h>
#include <torchbridge/core/binding.h>
#include <torchbridge/core/closest_gpus.h>
#include <torchbridge/core/exported_values.h>
#include <torchbridge/core/outer_run.h>
#include <torchbridge/core/user_values.h>
#include <torchbridge/host/machine.h>
#include <torchbridge/host/placement.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/error_file.h>

namespace torchbridge {
namespace {

std::string text(int number) { return std::to_string(number); }

// Other tasks may not find it.
Error only_here(const Error& error) { return {.message = error.message, .only_here = true}; }

// Interface names may differ between nodes; a program on one node needs none.
Status add_interface(const StepPlan& plan, const EnvMap& environment, const Options& options, std::vector<Variable>& variables) {
  using Kind = InterfaceRule::Kind;
  if (options.iface.kind == Kind::kNone || (options.iface.kind == Kind::kAuto && plan.env.layout.node_count == 1)) return Ok{};
  const auto master = numeric_address(plan.env.master.host);
  const std::string name = options.iface.kind == Kind::kName ? options.iface.name : master ? interface_towards(*master) : "";
  if (name.empty() || (options.iface.kind == Kind::kAuto && name == "lo")) return Ok{};
  if (if_nametoindex(name.c_str()) == 0) return Error{"iface=" + name + ": " + host_name() + " has no interface of that name"};
  for (const char* variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    if (!environment.has(variable) || options.override_user) variables.emplace_back(variable, name);
  }
  return Ok{};
}

std::string with_port(const Endpoint& endpoint) {
  const bool ipv6 = endpoint.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + text(endpoint.port);
}

// With one task on every node that task may be a torchrun agent: PET_* are the defaults of its own options, and mean nothing
// to other programs. With several, each agent would start a full set of workers.
void add_agent_defaults(const StepPlan& plan, const EnvMap& environment, const Options& options, std::vector<Variable>& variables) {
  const Layout& at = plan.env.layout;
  if (at.world_size != at.node_count) return;
  std::vector<Variable> defaults = {
      {"PET_NNODES", text(at.node_count)},
      {"PET_NODE_RANK", text(at.node_rank)},
      {"PET_RDZV_ID", plan.env.run_id},
      {"PET_RDZV_ENDPOINT", with_port(plan.env.master)},
      {"PET_MASTER_ADDR", plan.env.master.host},
      {"PET_MASTER_PORT", text(plan.env.master.port)},
  };
  if (!environment.get("CUDA_VISIBLE_DEVICES").value_or("").empty()) defaults.emplace_back("PET_NPROC_PER_NODE", "gpu");
  for (auto& variable : defaults) {
    if (!environment.has(variable.first) || options.override_user) variables.push_back(std::move(variable));
  }
}

// torchrun's own words for an agent that waits for no other.
bool is_agent_alone(const std::vector<std::string>& program) {
  const auto has = [&](std::string_view word) { return std::find(program.begin(), program.end(), word) != program.end(); };
  const auto option = std::find(program.begin(), program.end(), "--nnodes");
  const bool one_node = option != program.end() && option + 1 != program.end() && (option[1] == "1" || option[1] == "1:1");
  return one_node || has("--standalone") || has("--nnodes=1") || has("--nnodes=1:1");
}

std::string summary_of(const StepPlan& plan) {
  constexpr std::size_t kShown = 16;
  const auto& tasks_per_node = plan.map.tasks_per_node();
  const auto& reserved = plan.facts.reserved_ports;
  const bool is_reserved = std::find(reserved.begin(), reserved.end(), plan.env.master.port) != reserved.end();
  std::string counts;
  for (std::size_t node = 0; node < std::min(kShown, tasks_per_node.size()); ++node) {
    counts += (node == 0 ? "" : ",") + text(tasks_per_node[node]);
  }
  if (tasks_per_node.size() > kShown) counts += ",...";
  return text(plan.map.world_size()) + " ranks on " + text(plan.map.node_count()) + " nodes (" + counts +
         "), MASTER_ADDR=" + plan.env.master.host + " MASTER_PORT=" + text(plan.env.master.port) +
         (is_reserved ? " (reserved for the step)" : "") + ", run " + plan.env.run_id;
}

// Empty where the launcher numbers the node's ranks as torchrun does: RANK = the node's base + LOCAL_RANK.
std::string note_on_base(const TaskMap& map, int node) {
  const int base = map.ranks_before(node);
  int low = INT_MAX, high = 0;  // of RANK - LOCAL_RANK, which never falls from one rank of the node to the next
  for (int rank = 0; rank < map.world_size(); ++rank) {
    if (!map.knows(rank) || map.node_of(rank) != node) continue;
    low = std::min(low, rank - map.local_rank_of(rank));
    high = rank - map.local_rank_of(rank);
  }
  if (low == base && high == base) return "";
  const std::string found = low == high ? text(low) + ", not the" : text(low) + " to " + text(high) + ", not always the";
  return "node " + text(node) + ": RANK - LOCAL_RANK is " + found + " node's base " + text(base) +
         ": programs that build device meshes node by node need ranks=block";
}

std::vector<std::string> notes_of(const StepPlan& plan, const Options& options, const Binding& binding) {
  std::vector<std::string> notes;
  const Layout& at = plan.env.layout;
  if (!binding.note.empty() && at.rank == 0) notes.push_back(binding.note);
  if (options.verbose && at.rank == 0) notes.push_back(summary_of(plan));
  if (options.verbose && at.local_rank == 0 && options.ranks != RankRule::kBlock) {
    const auto note = note_on_base(plan.map, at.node_rank);
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

// The CPUs of each task of this node, for the rules that divide a node among its tasks. Slurm tells them; others are asked.
Result<std::vector<CpuSet>> cpus_of_tasks(const StepPlan& plan, const EnvMap& environment, const Options& options, const CpuSet& own) {
  constexpr std::chrono::seconds kTimeout{60};
  const Layout& at = plan.env.layout;
  if (plan.facts.launcher == "slurm") return slurm_task_cpus(environment, at, own);
  const bool divides = options.gpus == GpuRule::kClosest || options.cpus == CpuRule::kGpu;
  if (!divides || own.empty()) return std::vector<CpuSet>();
  const Group node{.job = plan.env.run_id + "/cpus",
                   .rank = at.local_rank,
                   .size = at.local_world_size,
                   .node_key = plan.env.run_id + "/cpus/" + text(at.node_rank),
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

}  // namespace

Result<TaskEnvironment> task_environment(const StepPlan& plan, const EnvMap& environment, const Options& options,
                                         const Socket& reserved_port, const std::vector<std::string>& program) {
  if (const auto checked = check_exported(environment, options.override_user); !checked) return checked.error();
  auto variables = variables_to_set(variables_of(plan.env), environment, options.override_user);
  if (!variables) return only_here(variables.error());
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
  if (const auto placed = place(binding->cpus, binding->memory_node); !placed) return only_here(placed.error());

  TaskEnvironment task{std::move(*variables), notes_of(plan, options, *binding)};
  task.variables.insert(task.variables.end(), binding->variables.begin(), binding->variables.end());
  if (const auto added = add_interface(plan, environment, options, task.variables); !added) return only_here(added.error());
  if (!is_agent_alone(program)) add_agent_defaults(plan, environment, options, task.variables);
  if (reserved_port.open()) task.variables.emplace_back("TORCHBRIDGE_LISTEN_FD", text(reserved_port.descriptor()));
  const Variable marker(kRunVariable, plan.env.run_id);
  if (environment.has("TORCHELASTIC_ERROR_FILE") && !options.override_user) {
    task.variables.push_back(marker);
    return task;
  }
  // Without a safe place the program runs all the same: it then has no file to leave its reason in.
  // A single process that nobody launched shares its run id with all others of its kind.
  const std::string run = plan.facts.launcher == "none" ? plan.env.run_id + "-" + std::to_string(getpid()) : plan.env.run_id;
  const auto file = error_file_in("/tmp", run, plan.env.restart_count, plan.env.layout.rank);
  task.variables.push_back(file ? Variable("TORCHELASTIC_ERROR_FILE", *file) : marker);
  return task;
}

}  // namespace torchbridge
