#include "bridge/launch/launch_from.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "bridge/core/launchers/pals.h"
#include "bridge/launch/launcher_exchange.h"
#include "bridge/launch/launcher_of_process.h"
#include "bridge/launch/rank_nodes.h"
#include "bridge/net/address.h"

namespace torchbridge {
namespace {

std::vector<Variable> variables_for_mpi() {
  const char* value = std::getenv(kPmixVariable);
  if (value == nullptr) return {};
  return {{kPmixVariable, value}};
}

// `bound` is the store's socket where this rank has it already. An endpoint that the user exported is not reserved
// where this process itself will listen. For a program that follows by exec it is, or that program would find too late
// that another one has the port.
Result<Launch> launch_of(Result<StepPlan> plan, Socket bound, const EnvMap& environment,
                         const LaunchSettings& settings) {
  if (!plan) return plan.error();
  const bool will_listen = settings.store_socket == StoreSocket::kListening;
  if (!bound.open() && !(will_listen && plan->exported.host && plan->exported.port)) {
    auto reserved = reserve_store_socket(*plan, environment);
    if (!reserved) return reserved.error();
    bound = std::move(*reserved);
    const int port = plan->env.master.port;
    if (will_listen && bound.open()) {
      auto listening = inherit(bound.release(), port);
      if (!listening)
        return Error{"port " + std::to_string(port) +
                     " was taken by another program after it was reserved: start the job again"};
      bound = std::move(*listening);
    }
  }
  Launch launch;
  launch.env = plan->env;
  launch.launcher = plan->facts.launcher;
  launch.plan = std::move(*plan);
  launch.store_socket = std::move(bound);
  return launch;
}

// The ranks exchange what the launcher does not give, where they need it.
Result<Launch> launch_by_exchange(LaunchFacts facts, const StepOptions& step, const EnvMap& environment,
                                  const LaunchSettings& settings) {
  auto given = step.exported_endpoint();
  if (facts.world_size > 1 && !(given && !facts.needs_node_exchange())) {
    auto exchange = connect(facts, environment, step.options);
    if (!exchange) return exchange.error();
    auto launch = launch_through_exchange(**exchange, std::move(facts), step, environment, settings);
    exchange->reset();
    if (launch) launch->mpi_variables = variables_for_mpi();
    return launch;
  }
  auto store =
      given ? Result<StoreAddress>(StoreAddress{*given, {}}) : bind_store(true, step.options, settings.store_socket);
  if (!store) return store.error();
  auto plan = plan_step(std::move(facts), step, std::move(store->endpoint), settings.timeout);
  return launch_of(std::move(plan), std::move(store->socket), environment, settings);
}

// A launcher that names the nodes, as Slurm, gives all facts, except for ranks that it placed one by one.
Result<Launch> launch_by_facts(LaunchFacts facts, const StepOptions& step, const EnvMap& environment,
                               const LaunchSettings& settings) {
  if (step.options.ranks != RankRule::kBlock && can_exchange_placement(facts)) {
    if (const auto asked = exchange_placement(facts, step.token, settings.timeout); !asked) return asked.error();
  }
  return launch_of(plan_step(std::move(facts), step, std::nullopt, settings.timeout), {}, environment, settings);
}

// The nodes of all ranks, where PALS's file can be read; else the ranks must exchange them.
void add_pals_nodes(LaunchFacts& facts, const EnvMap& environment) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  const auto path = environment.get("PALS_APINFO");
  if (facts.launcher != "pals" || !path || facts.local_size == facts.world_size) return;
  std::ifstream file{std::string(*path), std::ios::binary};
  std::string content{std::istreambuf_iterator<char>(file), {}};
  LaunchFacts completed = facts;
  if (content.size() > kLargest || !add_pals_apinfo(completed, content) || !set_local_position(completed)) return;
  facts = std::move(completed);
}

// Whether srun started this very process, so that no torchrun is between.
bool is_task_itself(const EnvMap& environment) { return environment.get("SLURM_TASK_PID") == std::to_string(getpid()); }

// The socket that the plugin reserved for rank 0. A descendant may have the variable without the descriptor.
Socket inherited_socket(const TorchEnv& env, const EnvMap& environment) {
  if (env.layout.rank != 0) return {};
  const auto descriptor = environment.integer("TORCHBRIDGE_LISTEN_FD", 3, INT32_MAX);
  if (!descriptor || !*descriptor) return {};
  auto socket = inherit(static_cast<int>(**descriptor), env.master.port);
  return socket ? std::move(*socket) : Socket();
}

}  // namespace

Status check_against_launcher(const TorchEnv& env, const EnvMap& environment) {
  const auto facts = launcher_facts(environment);
  if (!facts) return Ok{};
  const Layout& at = env.layout;
  const bool by_torchrun_or_us = environment.has("TORCHELASTIC_RUN_ID");
  const bool same = at.rank == facts->rank && at.world_size == facts->world_size;
  const bool renumbered =
      at.world_size == facts->world_size && env.run_id.starts_with(facts->launcher + "-" + facts->job_id);
  const bool agents = by_torchrun_or_us && at.node_count == facts->world_size;
  const bool apart = by_torchrun_or_us && !is_mpirun(environment) && !is_task_itself(environment);
  if (same || renumbered || agents || apart) return Ok{};
  const std::string who = facts->launcher == "openmpi" || facts->launcher == "hydra" ? "mpirun" : facts->launcher;
  return Error{.message = "RANK='" + std::to_string(at.rank) + "' and WORLD_SIZE='" + std::to_string(at.world_size) +
                          "' are exported, but " + who + " started rank " + std::to_string(facts->rank) + " of " +
                          std::to_string(facts->world_size) + ": unset RANK and WORLD_SIZE, or the variables of " +
                          who + " if they are stale",
               .only_here = at.world_size == facts->world_size};  // for some rank it is right
}

Result<Launch> launch_from_env(const EnvMap& environment) {
  auto env = torch_env_from(environment);
  if (!env) {
    Error error = env.error();
    // Without a launcher a user or a script set the variables of each process: other processes may have the right ones.
    if (!launcher_facts(environment)) error.only_here = true;
    return error;
  }
  if (const auto fits = check_against_launcher(*env, environment); !fits) return fits.error();
  Launch launch;
  launch.env = std::move(*env);
  launch.launcher = "environment";
  const Layout& at = launch.env.layout;
  auto facts = launcher_facts(environment);
  if (facts && facts->rank == at.rank && facts->world_size == at.world_size) launch.matching_facts = std::move(facts);
  launch.store_socket = inherited_socket(launch.env, environment);
  return launch;
}

Result<Launch> launch_from_launcher(LaunchFacts facts, const EnvMap& environment, const LaunchSettings& settings) {
  const auto step = step_options(environment, settings.options);
  if (!step) return step.error();
  add_pals_nodes(facts, environment);
  if (facts.nodes.empty()) return launch_by_exchange(std::move(facts), *step, environment, settings);
  return launch_by_facts(std::move(facts), *step, environment, settings);
}

Result<Launch> launch_through_exchange(Exchange& exchange, LaunchFacts facts, const StepOptions& step,
                                       const EnvMap& environment, const LaunchSettings& settings) {
  auto store =
      publish_store(facts, exchange, step.exported_endpoint(), step.options, settings.store_socket, settings.timeout);
  if (!store) return store.error();
  auto plan = plan_step(std::move(facts), step, std::move(store->endpoint), settings.timeout);
  return launch_of(std::move(plan), std::move(store->socket), environment, settings);
}

Result<Launch> launch_single_process(const LaunchSettings& settings) {
  LaunchFacts facts;
  facts.launcher = "none";
  facts.nodes = {host_name()};
  facts.tasks_per_node = {1};
  return launch_by_exchange(std::move(facts), {settings.options, {}, {}}, {}, settings);
}

}  // namespace torchbridge
