#include "bridge/base/message_text.h"
#include "bridge/core/launcher.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/launch/launch.h"
#include "bridge/launch/launch_from.h"
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
  return Error{
      formatted("{} needs rank and world size, and {} is missing: pass it to the program, in the "
                "URL (?rank=R&world_size=N), or as RANK and WORLD_SIZE",
                method, ranks.rank ? "the world size" : "the rank")};
}

// Rank, world size and store are given: no launcher is asked.
Result<Launch> launch_from_given_ranks(const char* method, const GivenRanks& ranks,
                                       const Endpoint& store, const LaunchOrigin& origin) {
  if (const auto known = both_known(method, ranks); !known) return known.error();
  EnvMap complete = with_ranks(origin.environment, ranks);
  complete.set("MASTER_ADDR", store.host);
  complete.set("MASTER_PORT", std::to_string(store.port));
  auto env = torch_env_from(complete);
  if (!env) return env.error();
  Launch launch;
  launch.env = std::move(*env);
  launch.launcher = method;
  set_by_hand(launch, origin);
  return launch;
}

Result<LaunchFacts> facts_of(const char* method, const LaunchOrigin& origin, const char* start) {
  const bool fits =
      origin.launcher != nullptr && (std::string_view(method) != "mpi://" || origin.is_of_mpirun());
  if (!fits) {
    return Error{formatted(
        "{}: this process was not started by {}: start it so, or give another init method", method,
        start)};
  }
  if (!origin.facts) return origin.facts_error;
  return *origin.facts;
}

Result<Launch> launch_by_slurm(const LaunchOrigin& origin, const LaunchSettings& settings) {
  const EnvMap& environment = origin.environment;
  if (!detect_slurm(environment)) {
    return Error{
        "slurm://: SLURM_STEP_ID, SLURM_PROCID and SLURM_STEP_NUM_TASKS are not set: start the "
        "program with srun"};
  }
  // The plugin, or exec, has set the variables of this step, and holds the port.
  if (origin.facts && origin.facts->launcher == "slurm" &&
      (origin.is_set_by_us() || origin.is_set_inside))
    return launch_from_given(origin.given, origin);
  auto facts = read_slurm(environment);
  if (!facts) return facts.error();
  return launch_from_launcher(std::move(*facts), without_master(environment), settings);
}

Result<Launch> launch_by_mpi(const LaunchOrigin& origin, const LaunchSettings& settings) {
  auto facts = facts_of("mpi://", origin, "mpirun or mpiexec");
  if (!facts) return facts.error();
  return launch_from_launcher(std::move(*facts), without_master(origin.environment), settings);
}

Result<Launch> launch_by_pmix(const LaunchOrigin& origin, const LaunchSettings& settings) {
  if (!origin.environment.has("PMIX_NAMESPACE")) {
    return Error{
        "pmix://: PMIX_NAMESPACE is not set: start the program with srun --mpi=pmix, or with "
        "OpenMPI's mpirun"};
  }
  auto facts = facts_of("pmix://", origin, "a launcher that sets the number of ranks");
  if (!facts) return facts.error();
  auto exchange = connect_by_pmix(*facts);
  if (!exchange) return exchange.error();
  return launch_through_exchange(**exchange, std::move(*facts), {settings.options, {}, {}},
                                 origin.environment, settings);
}

// The launcher's rank and world size hold; those that the program gives must be the same.
Status check_given(const GivenRanks& given, const Launch& launch) {
  const Layout& at = launch.env.layout;
  const bool same = given.rank.value_or(at.rank) == at.rank &&
                    given.world_size.value_or(at.world_size) == at.world_size;
  if (same) return Ok{};
  return Error{
      formatted("the program gives rank {} of {}, but this process is rank {} of {} according to "
                "{}: leave rank and world size out",
                given.rank.value_or(at.rank), given.world_size.value_or(at.world_size), at.rank,
                at.world_size, launch.launcher)};
}

}  // namespace

Result<Launch> resolve_launch(const InitMethod& method, const GivenRanks& arguments,
                              const LaunchOrigin& origin, const LaunchSettings& settings) {
  const EnvMap& environment = origin.environment;
  const bool by_launcher =
      method.kind == Kind::kSlurm || method.kind == Kind::kMpi || method.kind == Kind::kPmix;
  // The plugin or torchrun may number ranks differently, so RANK is ignored where the method names
  // a launcher.
  const auto ranks = agreed_ranks(
      arguments, method, by_launcher || method.kind == Kind::kAny ? EnvMap() : environment);
  if (!ranks) return ranks.error();
  const auto checked = [&](Result<Launch> launch) -> Result<Launch> {
    if (!launch) return launch;
    if (const auto fits = check_given(*ranks, *launch); !fits) return fits.error();
    return launch;
  };
  switch (method.kind) {
    case Kind::kEnvironment: {
      if (const auto known = both_known("env://", *ranks); !known) return known.error();
      return launch_from_given(given_by(with_ranks(environment, *ranks), origin), origin);
    }
    case Kind::kTcp:
      return launch_from_given_ranks("tcp://", *ranks, method.endpoint, origin);
    case Kind::kFile:
    case Kind::kStore: {
      auto launch = launch_from_given_ranks(method.kind == Kind::kFile ? "file://" : "a store",
                                            *ranks, {"localhost", 1}, origin);
      if (launch) launch->env.master = {};
      return launch;
    }
    case Kind::kSlurm:
      return checked(launch_by_slurm(origin, settings));
    case Kind::kMpi:
      return checked(launch_by_mpi(origin, settings));
    case Kind::kPmix:
      return checked(launch_by_pmix(origin, settings));
    case Kind::kAny:
      break;
  }
  return checked(resolve_launch(origin, settings));
}

}  // namespace torchbridge
