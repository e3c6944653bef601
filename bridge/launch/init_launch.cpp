#include <unistd.h>

#include "bridge/core/launcher.h"
#include "bridge/core/launchers/slurm.h"
#include "bridge/core/nested_launch.h"
#include "bridge/launch/launch.h"
#include "bridge/launch/launch_from.h"
#include "bridge/launch/launcher_of_process.h"
#include "bridge/launch/publish_store.h"

namespace torchbridge {
namespace {

using Kind = InitMethod::Kind;

// A value that the program gave counts like an exported one.
EnvMap with_ranks(EnvMap environment, const GivenRanks& ranks) {
  if (ranks.rank) environment.set("RANK", std::to_string(*ranks.rank));
  if (ranks.world_size) environment.set("WORLD_SIZE", std::to_string(*ranks.world_size));
  return environment;
}

// Where the init method names a launcher, exported addresses are ignored.
EnvMap without_master(const EnvMap& environment) {
  EnvMap rest;
  for (const auto& [name, value] : environment) {
    if (name != "MASTER_ADDR" && name != "MASTER_PORT") rest.set(name, value);
  }
  return rest;
}

Status both_known(const char* method, const GivenRanks& ranks) {
  if (ranks.rank && ranks.world_size) return Ok{};
  return Error{std::string(method) + " needs rank and world size, and " + (ranks.rank ? "the world size" : "the rank") +
               " is missing: pass it to the program, in the URL (?rank=R&world_size=N), or as RANK and WORLD_SIZE"};
}

// Rank, world size and store are given: no launcher is asked.
Result<Launch> launch_from_given_ranks(const char* method, const GivenRanks& ranks, const Endpoint& store,
                                       const EnvMap& environment) {
  if (const auto known = both_known(method, ranks); !known) return known.error();
  EnvMap complete = with_ranks(environment, ranks);
  complete.set("MASTER_ADDR", store.host);
  complete.set("MASTER_PORT", std::to_string(store.port));
  auto env = torch_env_from(complete);
  if (!env) return env.error();
  Launch launch;
  launch.env = std::move(*env);
  launch.launcher = method;
  return launch;
}

Result<LaunchFacts> facts_of(const char* method, const EnvMap& environment, const char* start) {
  const auto launcher = find_launcher(environment, slurm_task_or_self(environment));
  if (!launcher) return launcher.error();
  const bool fits =
      *launcher != nullptr && (std::string_view(method) != "mpi://" || (*launcher)->kind == Launcher::Kind::kMpi);
  if (!fits) {
    return Error{std::string(method) + ": this process was not started by " + start +
                 ": start it so, or give another init method"};
  }
  return (*launcher)->read(environment);
}

Result<Launch> launch_by_slurm(const EnvMap& environment, const LaunchSettings& settings) {
  if (!detect_slurm(environment)) {
    return Error{
        "slurm://: SLURM_STEP_ID, SLURM_PROCID and SLURM_STEP_NUM_TASKS are not set: start the program with srun"};
  }
  auto facts = read_slurm(environment);
  if (!facts) return facts.error();
  // The plugin, or exec, has set the variables of this step, and holds the port.
  if (is_set_for(environment, *facts)) return launch_from_env(environment);
  return launch_from_launcher(std::move(*facts), without_master(environment), settings);
}

Result<Launch> launch_by_mpi(const EnvMap& environment, const LaunchSettings& settings) {
  auto facts = facts_of("mpi://", environment, "mpirun or mpiexec");
  if (!facts) return facts.error();
  return launch_from_launcher(std::move(*facts), without_master(environment), settings);
}

Result<Launch> launch_by_pmix(const EnvMap& environment, const LaunchSettings& settings) {
  if (!environment.has("PMIX_NAMESPACE")) {
    return Error{
        "pmix://: PMIX_NAMESPACE is not set: start the program with srun --mpi=pmix, or with OpenMPI's mpirun"};
  }
  auto facts = facts_of("pmix://", environment, "a launcher that sets the number of ranks");
  if (!facts) return facts.error();
  auto exchange = connect_by_pmix(*facts);
  if (!exchange) return exchange.error();
  return launch_through_exchange(**exchange, std::move(*facts), {settings.options, {}, {}}, environment, settings);
}

// The launcher's rank and world size hold; those that the program gives must be the same.
Status check_given(const GivenRanks& given, const Launch& launch) {
  const Layout& at = launch.env.layout;
  const bool same =
      given.rank.value_or(at.rank) == at.rank && given.world_size.value_or(at.world_size) == at.world_size;
  if (same) return Ok{};
  return Error{"the program gives rank " + std::to_string(given.rank.value_or(at.rank)) + " of " +
               std::to_string(given.world_size.value_or(at.world_size)) + ", but this process is rank " +
               std::to_string(at.rank) + " of " + std::to_string(at.world_size) + " according to " + launch.launcher +
               ": leave rank and world size out"};
}

}  // namespace

Result<Launch> resolve_launch(const InitMethod& method, const GivenRanks& arguments, const EnvMap& environment,
                              const LaunchSettings& settings) {
  const bool by_launcher = method.kind == Kind::kSlurm || method.kind == Kind::kMpi || method.kind == Kind::kPmix;
  // The plugin or torchrun may number ranks differently, so RANK is ignored where the method names a launcher.
  const auto ranks = agreed_ranks(arguments, method, by_launcher || method.kind == Kind::kAny ? EnvMap() : environment);
  if (!ranks) return ranks.error();
  const auto checked = [&](Result<Launch> launch) -> Result<Launch> {
    if (!launch) return launch;
    if (const auto fits = check_given(*ranks, *launch); !fits) return fits.error();
    return launch;
  };
  switch (method.kind) {
    case Kind::kEnvironment: {
      if (const auto known = both_known("env://", *ranks); !known) return known.error();
      return launch_from_env(with_ranks(environment, *ranks));
    }
    case Kind::kTcp:
      return launch_from_given_ranks("tcp://", *ranks, method.endpoint, environment);
    case Kind::kFile:
    case Kind::kStore: {
      auto launch = launch_from_given_ranks(method.kind == Kind::kFile ? "file://" : "a store", *ranks,
                                            {"localhost", 1}, environment);
      if (launch) launch->env.master = {};
      return launch;
    }
    case Kind::kSlurm:
      return checked(launch_by_slurm(environment, settings));
    case Kind::kMpi:
      return checked(launch_by_mpi(environment, settings));
    case Kind::kPmix:
      return checked(launch_by_pmix(environment, settings));
    case Kind::kAny:
      break;
  }
  return checked(resolve_launch(environment, settings));
}

}  // namespace torchbridge
