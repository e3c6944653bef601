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

// Only rank 0 listens, and only on a node that has the address; a store elsewhere is somebody else's.
Status check_port(const TorchEnv& env, const Endpoint& master) {
  if (env.layout.rank != 0) return Ok{};
  const auto address = numeric_address(master.host);
  if (!address) return address.error();
  const auto own = local_addresses();
  if (!is_loopback(*address) && std::find(own.begin(), own.end(), *address) == own.end()) return Ok{};
  if (port_is_free(master.port)) return Ok{};
  return Error{"MASTER_PORT=" + std::to_string(master.port) + " is already in use on " + host_name() + " (" + *address +
               "), where rank 0 must listen: choose another with port=N, or end the program that uses it"};
}

std::string text(int number) { return std::to_string(number); }

std::string summary_of(const TorchEnv& env, const Endpoint& master, const LaunchFacts& facts) {
  const Layout& at = env.layout;
  std::string counts;
  constexpr std::size_t kShown = 16;
  for (std::size_t node = 0; node < std::min(kShown, facts.tasks_per_node.size()); ++node) {
    counts += (node == 0 ? "" : ",") + text(facts.tasks_per_node[node]);
  }
  if (facts.tasks_per_node.size() > kShown) counts += ",...";
  return text(at.world_size) + " ranks on " + text(at.node_count) + " nodes (" + counts + "), MASTER_ADDR=" + master.host +
         " MASTER_PORT=" + text(master.port) + (facts.reserved_ports.empty() ? "" : " (reserved for the step)") +
         ", run " + env.run_id;
}

void add_notes(const LaunchFacts& facts, const TaskMap& map, const Endpoint& master, const Options& options,
               const Binding& binding, TaskEnvironment& task) {
  const Layout& at = task.env.layout;
  const bool first_on_node = at.local_rank == 0;
  if (!binding.note.empty() && at.rank == 0) task.notes.push_back(binding.note);
  if (!options.verbose) return;
  if (at.rank == 0) task.notes.push_back(summary_of(task.env, master, facts));
  if (first_on_node && at.rank - at.local_rank != map.ranks_before(at.node_rank)) {
    task.notes.push_back("node " + text(at.node_rank) + ": RANK - LOCAL_RANK is " + text(at.rank) + ", not the node's base " +
                         text(map.ranks_before(at.node_rank)) +
                         ": programs that build device meshes node by node need ranks=block");
  }
}

}  // namespace

Result<TaskEnvironment> task_environment(const EnvMap& environment, const Options& options) {
  const auto facts = read_slurm(environment);
  if (!facts) return facts.error();
  const auto map = task_map_of(*facts);
  if (!map) return map.error();
  auto endpoint = endpoint_of(*facts, options, ephemeral_ports());
  if (!endpoint) return endpoint.error();
  auto env = torch_env_of(*facts, options, std::move(*endpoint));
  if (!env) return env.error();
  make_numeric(env->master, env->layout);
  const auto binding = binding_of(environment, env->layout, options);
  if (!binding) return binding.error();
  const auto master = effective_master(env->master, environment, options);
  if (!master) return master.error();
  if (const auto free = check_port(*env, *master); !free) return free.error();

  TorchEnv shown = *env;
  shown.layout.local_rank = binding->local_rank;
  auto computed = variables_of(shown);
  const auto error_file = error_file_in("/tmp", env->run_id, env->restart_count, env->layout.rank);
  if (error_file) computed.emplace_back("TORCHELASTIC_ERROR_FILE", *error_file);
  auto chosen = variables_to_set(computed, environment, options.override_user);
  if (!chosen) return chosen.error();

  TaskEnvironment task{std::move(*env), std::move(*chosen), {}};
  task.variables.insert(task.variables.end(), binding->variables.begin(), binding->variables.end());
  add_notes(*facts, *map, *master, options, *binding, task);
  return task;
}

bool speaks_for_step(const EnvMap& environment) { return environment.get("SLURM_PROCID").value_or("0") == "0"; }

}  // namespace torchbridge
