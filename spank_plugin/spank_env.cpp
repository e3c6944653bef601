#include "spank_env.h"

#include <algorithm>

#include <torchbridge/core/binding.h>
#include <torchbridge/core/launchers/slurm.h>
#include <torchbridge/core/user_values.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/socket.h>

#include "error_file.h"

namespace torchbridge {
namespace {

// The same number on every node, so that it does not matter whose resolver knows the name. A loopback address is what
// a node's own /etc/hosts may give for its name: for the others it would be wrong, so the name stays.
void make_numeric(Endpoint& master, const Layout& layout) {
  const auto numeric = numeric_address(master.host);
  if (numeric && (layout.node_count == 1 || !is_loopback(*numeric))) master.host = *numeric;
}

// Where rank 0 will really listen: what the user exported is kept, unless it is to be replaced.
Result<Endpoint> effective_master(const Endpoint& computed, const EnvMap& environment, const Options& options) {
  Endpoint master = computed;
  if (options.override_user) return master;
  const auto port = environment.integer("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  if (*port) master.port = static_cast<int>(**port);
  if (const auto host = environment.get("MASTER_ADDR")) master.host = *host;
  return master;
}

std::string text(int number) { return std::to_string(number); }

// Only rank 0 listens, and only on a node that has the address; a store elsewhere is somebody else's.
Status check_port(const TorchEnv& env, const Endpoint& master) {
  if (env.layout.rank != 0) return Ok{};
  const auto address = numeric_address(master.host);
  if (!address) return address.error();
  const auto own = local_addresses();
  if (!is_loopback(*address) && std::find(own.begin(), own.end(), *address) == own.end()) return Ok{};
  if (port_is_free(master.port)) return Ok{};
  return Error{"MASTER_PORT=" + text(master.port) + " is already in use on " + host_name() + " (" + *address +
               "), where rank 0 must listen: choose another with port=N, or end the program that uses it"};
}

std::string summary_of(const StepPlan& plan) {
  constexpr std::size_t kShown = 16;
  const auto& tasks_per_node = plan.facts.tasks_per_node;
  std::string counts;
  for (std::size_t node = 0; node < std::min(kShown, tasks_per_node.size()); ++node) {
    counts += (node == 0 ? "" : ",") + text(tasks_per_node[node]);
  }
  if (tasks_per_node.size() > kShown) counts += ",...";
  return text(plan.map.world_size()) + " ranks on " + text(plan.map.node_count()) + " nodes (" + counts +
         "), MASTER_ADDR=" + plan.master.host + " MASTER_PORT=" + text(plan.master.port) +
         (plan.facts.reserved_ports.empty() ? "" : " (reserved for the step)") + ", run " + plan.env.run_id;
}

std::vector<std::string> notes_of(const StepPlan& plan, const Options& options, const Binding& binding) {
  std::vector<std::string> notes;
  const Layout& at = plan.env.layout;
  const int base = plan.map.ranks_before(at.node_rank);
  if (!binding.note.empty() && at.rank == 0) notes.push_back(binding.note);
  if (options.verbose && at.rank == 0) notes.push_back(summary_of(plan));
  if (options.verbose && at.local_rank == 0 && at.rank != base) {
    notes.push_back("node " + text(at.node_rank) + ": RANK - LOCAL_RANK is " + text(at.rank) + ", not the node's base " +
                    text(base) + ": programs that build device meshes node by node need ranks=block");
  }
  return notes;
}

}  // namespace

Result<StepPlan> plan_step(const EnvMap& environment, const Options& options) {
  auto facts = read_slurm(environment);
  if (!facts) return facts.error();
  auto map = task_map_of(*facts);
  if (!map) return map.error();
  auto endpoint = endpoint_of(*facts, *map, options, ephemeral_ports());
  if (!endpoint) return endpoint.error();
  auto env = torch_env_of(*facts, *map, options, std::move(*endpoint));
  make_numeric(env.master, env.layout);
  auto master = effective_master(env.master, environment, options);
  if (!master) return master.error();
  auto variables = variables_to_set(variables_of(env), environment, options.override_user);
  if (!variables) return variables.error();
  return StepPlan{std::move(*facts), std::move(*map), std::move(env), std::move(*master), std::move(*variables)};
}

Result<TaskEnvironment> task_environment(const StepPlan& plan, const EnvMap& environment, const Options& options) {
  const auto binding = binding_of(environment, plan.env.layout, options);
  if (!binding) return binding.error();
  if (const auto free = check_port(plan.env, plan.master); !free) return free.error();

  TaskEnvironment task{plan.variables, notes_of(plan, options, *binding)};
  task.variables.insert(task.variables.end(), binding->variables.begin(), binding->variables.end());
  if (environment.has("TORCHELASTIC_ERROR_FILE") && !options.override_user) return task;
  // Without a safe place the program runs all the same: it then has no file to leave its reason in.
  const auto file = error_file_in("/tmp", plan.env.run_id, plan.env.restart_count, plan.env.layout.rank);
  if (file) task.variables.emplace_back("TORCHELASTIC_ERROR_FILE", *file);
  return task;
}

}  // namespace torchbridge
