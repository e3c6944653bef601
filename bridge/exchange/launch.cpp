#include <torchbridge/exchange/launch.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <torchbridge/core/host_text.h>
#include <torchbridge/core/launchers/pals.h>
#include <torchbridge/core/launchers/slurm.h>
#include <torchbridge/core/outer_run.h>
#include <torchbridge/exchange/exchange.h>
#include <torchbridge/exchange/placement.h>
#include <torchbridge/host/process_tree.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/master_address.h>
#include <torchbridge/task/meeting_places.h>
#include <torchbridge/task/store_port.h>

#include "launch_steps.h"

namespace torchbridge {
namespace {

// MASTER_ADDR and MASTER_PORT as the user exported them, where they are not to be replaced: both are the endpoint, one alone takes
// the place of the option of its kind.
Result<std::optional<Endpoint>> endpoint_given(const EnvMap& environment, Options& options) {
  if (options.override_user) return std::optional<Endpoint>();
  const auto port = environment.integer("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  const auto host = environment.get("MASTER_ADDR");
  if (host && !is_host_text(*host)) return Error{"MASTER_ADDR='" + printable(*host) + "': expected a host name or an address: unset it"};
  if (host && *port) return std::optional<Endpoint>({std::string(*host), static_cast<int>(**port)});
  if (host) options.addr = {AddressRule::Kind::kHost, std::string(*host)};
  if (*port) options.port = {static_cast<int>(**port), static_cast<int>(**port)};
  return std::optional<Endpoint>();
}

// The program that comes after us would find out too late that somebody else has the port, or that another host has the address.
Status reserve_given(Launch& launch, const Endpoint& given, const EnvMap& environment, const LaunchSettings& settings) {
  const bool agent_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (settings.store_socket != StoreSocket::kReserved || launch.env.layout.rank != 0 || agent_serves) return Ok{};
  auto socket = reserve_store_port(given);
  if (!socket) return socket.error();
  launch.store_socket = std::move(*socket);
  return Ok{};
}

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

Result<Launch> launch_of(LaunchFacts facts, StoreAddress address, const LaunchSettings& settings) {
  const auto map = task_map_of(facts);
  if (!map) return map.error();
  Launch launch;
  launch.env = torch_env_of(facts, *map, settings.options, std::move(address.endpoint));
  launch.store_socket = std::move(address.socket);
  launch.launcher = facts.launcher;
  launch.facts = std::move(facts);
  return launch;
}

Result<Launch> launch_by_exchange(LaunchFacts facts, const EnvMap& environment, const std::optional<Endpoint>& given,
                                  const LaunchSettings& settings) {
  const bool nothing_to_ask = facts.world_size == 1 || (given && !facts.needs_node_exchange());
  if (!nothing_to_ask) {
    auto exchange = connect(facts, environment, settings.options);
    if (!exchange) return exchange.error();
    auto address = meet(facts, **exchange, given, settings.options, settings.store_socket, settings.timeout);
    if (!address) return address.error();
    exchange->reset();
    auto launch = launch_of(std::move(facts), std::move(*address), settings);
    if (launch) launch->keep_for_mpi = variables_for_mpi();
    return launch;
  }
  if (given) return launch_of(std::move(facts), {*given, {}}, settings);
  auto address = bind_store(true, settings.options, settings.store_socket);
  if (!address) return address.error();
  return launch_of(std::move(facts), std::move(*address), settings);
}

// A launcher that names the nodes, as Slurm, has told all there is to know, but for ranks placed one by one.
Result<Launch> launch_by_facts(LaunchFacts facts, const std::optional<Endpoint>& given, const LaunchSettings& settings) {
  if (settings.options.ranks != RankRule::kBlock && can_ask_for_placement(facts)) {
    if (const auto asked = ask_for_placement(facts, settings.timeout); !asked) return asked.error();
  }
  if (given) return launch_of(std::move(facts), {*given, {}}, settings);
  const auto map = task_map_of(facts);
  if (!map) return map.error();
  auto endpoint = store_endpoint_of(facts, *map, settings.options);
  if (!endpoint) return endpoint.error();
  auto launch = launch_of(std::move(facts), {*endpoint, {}}, settings);
  if (!launch) return launch;
  auto address = agree_on_address(*launch->facts, *map, launch->env, settings.options, settings.timeout,
                                  [&] { return other_meeting_places(*launch->facts, *map, settings.options); });
  if (!address) return address.error();
  launch->env.master.host = std::move(*address);
  if (launch->env.layout.rank != 0 || settings.store_socket == StoreSocket::kUnlessKnown) return launch;
  auto socket = reserve_store_port(launch->env.master);
  if (!socket) return socket.error();
  if (socket->open() && settings.store_socket == StoreSocket::kListening) {
    auto listening = inherit(socket->release(), endpoint->port);
    if (!listening) return Error{"another program began to listen on port " + std::to_string(endpoint->port) + " just now"};
    *socket = std::move(*listening);
  }
  launch->store_socket = std::move(*socket);
  return launch;
}

// A world of one: any free port will do, and nobody has to be told.
Result<Launch> launch_alone(const LaunchSettings& settings) {
  LaunchFacts facts;
  facts.launcher = "none";
  facts.nodes = {host_name()};
  facts.tasks_per_node = {1};
  auto address = bind_store(true, settings.options, settings.store_socket);
  if (!address) return address.error();
  return launch_of(std::move(facts), std::move(*address), settings);
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

bool is_mpirun(const EnvMap& environment) {
  const Launcher* launcher = innermost_launcher(environment, task_or_self(environment));
  return launcher != nullptr && launcher->kind == Launcher::Kind::kMpi;
}

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
  return Error{"RANK='" + std::to_string(at.rank) + "' and WORLD_SIZE='" + std::to_string(at.world_size) +
               "' are exported, but " + who + " says rank " + std::to_string(facts->rank) + " of " +
               std::to_string(facts->world_size) + ": unset the one that is not meant"};
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

Result<Launch> launch_by_launcher(LaunchFacts facts, const EnvMap& environment, const std::optional<Endpoint>& given,
                                  const LaunchSettings& settings) {
  add_pals_nodes(facts, environment);
  if (facts.nodes.empty()) return launch_by_exchange(std::move(facts), environment, given, settings);
  return launch_by_facts(std::move(facts), given, settings);
}

Result<Launch> launch_through(Exchange& exchange, LaunchFacts facts, const std::optional<Endpoint>& given,
                              const LaunchSettings& settings) {
  auto address = meet(facts, exchange, given, settings.options, settings.store_socket, settings.timeout);
  if (!address) return address.error();
  return launch_of(std::move(facts), std::move(*address), settings);
}

int presumed_rank(const EnvMap& inherited) {
  const EnvMap environment = of_this_launch(inherited);
  const auto facts = launcher_facts(environment);
  const auto env = torch_env_from(environment);
  if (env && check_against_launcher(*env, environment)) return env->layout.rank;
  // The exported RANK contradicts the launcher, or lacks companions: it may be the same everywhere. Where it is rank 0's, that finds no error, and rank 1 reports it.
  const bool fits_rank_0 = facts && env && env->layout.rank == 0 && env->layout.world_size == facts->world_size;
  if (facts) return fits_rank_0 && facts->rank == 1 ? 0 : facts->rank;
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
  if ((has_rank && !replaced) || (nobody && environment.has("WORLD_SIZE"))) return launch_by_word(environment);
  if (!launcher) return launcher.error();
  if (nobody) return launch_alone(settings);

  auto facts = (*launcher)->read(environment);
  if (!facts) return facts.error();
  const auto exported = environment.get("WORLD_SIZE");
  if (exported && *exported != std::to_string(facts->world_size) && !settings.options.override_user) {
    return Error{"WORLD_SIZE='" + printable(*exported) + "' is exported, but " + facts->launcher + " started " +
                 std::to_string(facts->world_size) + (facts->world_size == 1 ? " rank" : " ranks") + ": unset it"};
  }
  LaunchSettings with_exports = settings;
  const auto given = endpoint_given(environment, with_exports.options);
  if (!given) return given.error();
  auto launch = launch_by_launcher(std::move(*facts), environment, *given, with_exports);
  if (!launch || !*given) return launch;
  if (const auto reserved = reserve_given(*launch, **given, environment, settings); !reserved) return reserved.error();
  return launch;
}

Result<Launch> resolve_launch(Exchange& exchange, const ExchangeRanks& ranks, const EnvMap& environment,
                              const LaunchSettings& settings) {
  LaunchFacts facts;
  facts.launcher = "mpi";
  facts.rank = ranks.rank;
  facts.world_size = ranks.world_size;
  facts.local_size = ranks.local_size;
  LaunchSettings with_exports = settings;
  const auto given = endpoint_given(environment, with_exports.options);
  if (!given) return given.error();
  return launch_through(exchange, std::move(facts), *given, with_exports);
}

Result<Launch> resolve_launch(const EnvMap& environment, std::chrono::milliseconds timeout) {
  LaunchSettings settings;
  settings.timeout = timeout;
  return resolve_launch(environment, settings);
}

}  // namespace torchbridge
