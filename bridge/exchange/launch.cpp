#include <torchbridge/exchange/launch.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <torchbridge/core/launchers/pals.h>
#include <torchbridge/core/launchers/slurm.h>
#include <torchbridge/core/outer_run.h>
#include <torchbridge/exchange/launcher_exchange.h>
#include <torchbridge/exchange/placement.h>
#include <torchbridge/host/process_tree.h>
#include <torchbridge/net/address.h>

#include "launch_steps.h"

namespace torchbridge {
namespace {

// RANK and LOCAL_RANK alone, which pyxis sets to the task's own for images of PyTorch. All else is ours to find. What a user has exported for all tasks
// has no PYTORCH_VERSION beside it.
bool has_only_ranks_of_pyxis(const EnvMap& environment) {
  const bool complete = environment.has("WORLD_SIZE") && environment.has("MASTER_ADDR") && environment.has("MASTER_PORT");
  const auto is_same = [&](const char* name, const char* of_slurm) { return environment.has(name) && environment.get(name) == environment.get(of_slurm); };
  return !complete && environment.has("PYTORCH_VERSION") && detect_slurm(environment) && is_same("RANK", "SLURM_PROCID") && is_same("LOCAL_RANK", "SLURM_LOCALID");
}

std::vector<Variable> variables_for_mpi() {
  const char* value = std::getenv(kPmixVariable);
  if (value == nullptr) return {};
  return {{kPmixVariable, value}};
}

// `bound` is the store's socket where this rank has it already. An endpoint that the user exported is left alone where this process
// itself will listen; a program that comes after us would find out too late that somebody else has it.
Result<Launch> launch_of(Result<StepPlan> plan, Socket bound, const EnvMap& environment, const LaunchSettings& settings) {
  if (!plan) return plan.error();
  const bool will_listen = settings.store_socket == StoreSocket::kListening;
  if (!bound.open() && !(will_listen && plan->exported.host && plan->exported.port)) {
    auto reserved = reserve_store_socket(*plan, environment);
    if (!reserved) return reserved.error();
    bound = std::move(*reserved);
    const int port = plan->env.master.port;
    if (will_listen && bound.open()) {
      auto listening = inherit(bound.release(), port);
      if (!listening) return Error{"another program began to listen on port " + std::to_string(port) + " just now"};
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

// The ranks tell each other what the launcher does not tell, where they need it.
Result<Launch> launch_by_exchange(LaunchFacts facts, const StepOptions& step, const EnvMap& environment, const LaunchSettings& settings) {
  auto given = step.exported_endpoint();
  if (facts.world_size > 1 && !(given && !facts.needs_node_exchange())) {
    auto exchange = connect(facts, environment, step.options);
    if (!exchange) return exchange.error();
    auto launch = launch_through(**exchange, std::move(facts), step, environment, settings);
    exchange->reset();
    if (launch) launch->keep_for_mpi = variables_for_mpi();
    return launch;
  }
  auto store = given ? Result<StoreAddress>(StoreAddress{*given, {}}) : bind_store(true, step.options, settings.store_socket);
  if (!store) return store.error();
  auto plan = plan_step(std::move(facts), step, std::move(store->endpoint), settings.timeout);
  return launch_of(std::move(plan), std::move(store->socket), environment, settings);
}

// A launcher that names the nodes, as Slurm, has told all there is to know, but for ranks placed one by one.
Result<Launch> launch_by_facts(LaunchFacts facts, const StepOptions& step, const EnvMap& environment, const LaunchSettings& settings) {
  if (step.options.ranks != RankRule::kBlock && can_ask_for_placement(facts)) {
    if (const auto asked = ask_for_placement(facts, settings.timeout); !asked) return asked.error();
  }
  return launch_of(plan_step(std::move(facts), step, std::nullopt, settings.timeout), {}, environment, settings);
}

// A world of one: any free port will do, and nobody has to be told.
Result<Launch> launch_alone(const LaunchSettings& settings) {
  LaunchFacts facts;
  facts.launcher = "none";
  facts.nodes = {host_name()};
  facts.tasks_per_node = {1};
  return launch_by_exchange(std::move(facts), {settings.options, {}}, {}, settings);
}

// The nodes of all ranks, where PALS's file can be read; else the ranks must ask each other.
void add_pals_nodes(LaunchFacts& facts, const EnvMap& environment) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  const auto path = environment.get("PALS_APINFO");
  if (facts.launcher != "pals" || !path || facts.local_size == facts.world_size) return;
  std::ifstream file{std::string(*path), std::ios::binary};
  std::string content{std::istreambuf_iterator<char>(file), {}};
  LaunchFacts completed = facts;
  if (content.size() > kLargest || !add_pals_apinfo(completed, content) || !take_nodes(completed)) return;
  facts = std::move(completed);
}

// What the launcher itself says, apart from RANK and its companions; nothing where there is none, or where it is at odds
// with itself.
std::optional<LaunchFacts> launcher_facts(const EnvMap& environment) {
  const auto launcher = find_launcher(environment, task_or_self(environment));
  if (!launcher || *launcher == nullptr) return std::nullopt;
  auto facts = (*launcher)->read(environment);
  return facts ? std::optional(std::move(*facts)) : std::nullopt;
}

// Whether srun started this very process: then no torchrun can be between.
bool is_task_itself(const EnvMap& environment) { return environment.get("SLURM_TASK_PID") == std::to_string(getpid()); }

// RANK and WORLD_SIZE that were exported around a launcher hold for none of its ranks. Right are: the launcher's own position;
// ours, in another numbering; and torchrun agents, one on each rank, whose workers count the agents as groups. A task of a
// resource manager may also run a torchrun of its own, apart from the others.
Status check_against_launcher(const TorchEnv& env, const EnvMap& environment) {
  const auto facts = launcher_facts(environment);
  if (!facts) return Ok{};
  const Layout& at = env.layout;
  const bool by_torchrun_or_us = environment.has("TORCHELASTIC_RUN_ID");
  const bool same = at.rank == facts->rank && at.world_size == facts->world_size;
  const bool renumbered = at.world_size == facts->world_size && env.run_id.starts_with(facts->launcher + "-" + facts->job_id);
  const bool agents = by_torchrun_or_us && at.node_count == facts->world_size;
  const bool apart = by_torchrun_or_us && !is_mpirun(environment) && !is_task_itself(environment);
  if (same || renumbered || agents || apart) return Ok{};
  const std::string who = facts->launcher == "openmpi" || facts->launcher == "hydra" ? "mpirun" : facts->launcher;
  return Error{.message = "RANK='" + std::to_string(at.rank) + "' and WORLD_SIZE='" + std::to_string(at.world_size) +
               "' are exported, but " + who + " says rank " + std::to_string(facts->rank) + " of " +
               std::to_string(facts->world_size) + ": unset the one that is not meant",
               .only_here = at.world_size == facts->world_size};  // for some rank it is right
}

// What the plugin reserved for rank 0. A program further down the tree may find the variable without the descriptor.
Socket inherited_socket(const TorchEnv& env, const EnvMap& environment) {
  if (env.layout.rank != 0) return {};
  const auto descriptor = environment.integer("TORCHBRIDGE_LISTEN_FD", 3, INT32_MAX);
  if (!descriptor || !*descriptor) return {};
  auto socket = inherit(static_cast<int>(**descriptor), env.master.port);
  return socket ? std::move(*socket) : Socket();
}

// By its name: orterun and prterun are what mpirun is, the daemons what it leaves on the nodes.
bool starts_ranks(std::string_view name) {
  constexpr std::string_view kBeginnings[] = {"mpirun", "mpiexec", "orte", "prte", "hydra_"};
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings), [&](auto beginning) { return name.starts_with(beginning); });
}

}  // namespace

std::int64_t task_or_self(const EnvMap& environment) {
  const auto task = environment.integer("SLURM_TASK_PID", 1, INT32_MAX);
  if (!task || !*task) return getpid();
  for (const auto& process : this_and_ancestors()) {
    if (starts_ranks(process.name)) break;  // also where it is the task itself
    if (process.id == **task) return process.id;
  }
  return getpid();
}

bool is_mpirun(const EnvMap& environment) {
  const Launcher* launcher = innermost_launcher(environment, task_or_self(environment));
  return launcher != nullptr && launcher->kind == Launcher::Kind::kMpi;
}

EnvMap of_this_launch(const EnvMap& environment) {
  if (!is_set_by_us(environment)) return environment;
  const auto facts = launcher_facts(environment);
  return facts ? without_outer_run(environment, *facts) : environment;
}

Result<Launch> launch_by_word(const EnvMap& environment) {
  auto env = torch_env_from(environment);
  if (!env) return env.error();
  if (const auto fits = check_against_launcher(*env, environment); !fits) return fits.error();
  Launch launch;
  launch.env = std::move(*env);
  launch.launcher = "environment";
  const Layout& at = launch.env.layout;
  auto beside = launcher_facts(environment);
  if (beside && beside->rank == at.rank && beside->world_size == at.world_size) launch.facts_beside = std::move(beside);
  launch.store_socket = inherited_socket(launch.env, environment);
  return launch;
}

Result<Launch> launch_by_launcher(LaunchFacts facts, const EnvMap& environment, const LaunchSettings& settings) {
  const auto step = step_options(environment, settings.options);
  if (!step) return step.error();
  add_pals_nodes(facts, environment);
  if (facts.nodes.empty()) return launch_by_exchange(std::move(facts), *step, environment, settings);
  return launch_by_facts(std::move(facts), *step, environment, settings);
}

Result<Launch> launch_through(Exchange& exchange, LaunchFacts facts, const StepOptions& step, const EnvMap& environment,
                              const LaunchSettings& settings) {
  auto store = meet(facts, exchange, step.exported_endpoint(), step.options, settings.store_socket, settings.timeout);
  if (!store) return store.error();
  auto plan = plan_step(std::move(facts), step, std::move(store->endpoint), settings.timeout);
  return launch_of(std::move(plan), std::move(store->socket), environment, settings);
}

int presumed_rank(const EnvMap& inherited) {
  const EnvMap environment = of_this_launch(inherited);
  const auto facts = launcher_facts(environment);
  const auto env = torch_env_from(environment);
  if (env && check_against_launcher(*env, environment)) return env->layout.rank;
  if (facts) return facts->rank;  // the exported RANK contradicts the launcher, or lacks companions
  const bool one_of_several = environment.has("WORLD_SIZE") || environment.has("MASTER_ADDR") || environment.has("MASTER_PORT");
  const auto rank = environment.integer("RANK", 0, INT32_MAX);
  return one_of_several && rank && *rank ? static_cast<int>(**rank) : 0;
}

Result<Launch> resolve_launch(const EnvMap& inherited, const LaunchSettings& settings) {
  const EnvMap environment = of_this_launch(inherited);
  const auto launcher = find_launcher(environment, task_or_self(environment));
  const bool nobody = launcher && *launcher == nullptr;
  const bool replaced = settings.options.override_user && !nobody;
  const bool has_rank = environment.has("RANK") && !has_only_ranks_of_pyxis(environment);
  const bool is_given = has_rank || environment.has(kStampVariable);  // the latter on a node without the plugin
  if ((is_given && !replaced) || (nobody && environment.has("WORLD_SIZE"))) return launch_by_word(environment);
  if (!launcher) return launcher.error();
  if (nobody) return launch_alone(settings);

  auto facts = (*launcher)->read(environment);
  if (!facts) return facts.error();
  const auto exported = environment.get("WORLD_SIZE");
  if (exported && *exported != std::to_string(facts->world_size) && !settings.options.override_user) {
    return Error{"WORLD_SIZE='" + printable(*exported) + "' is exported, but " + facts->launcher + " started " +
                 std::to_string(facts->world_size) + (facts->world_size == 1 ? " rank" : " ranks") + ": unset it"};
  }
  return launch_by_launcher(std::move(*facts), environment, settings);
}

Result<Launch> resolve_launch(Exchange& exchange, const ExchangeRanks& ranks, const EnvMap& environment,
                              const LaunchSettings& settings) {
  LaunchFacts facts;
  facts.launcher = "mpi";
  facts.rank = ranks.rank;
  facts.world_size = ranks.world_size;
  facts.local_size = ranks.local_size;
  const auto step = step_options(environment, settings.options);
  if (!step) return step.error();
  return launch_through(exchange, std::move(facts), *step, environment, settings);
}

Result<Launch> resolve_launch(const EnvMap& environment, std::chrono::milliseconds timeout) {
  LaunchSettings settings;
  settings.timeout = timeout;
  return resolve_launch(environment, settings);
}

}  // namespace torchbridge
