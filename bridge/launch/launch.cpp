#include "bridge/launch/launch.h"

#include "bridge/base/message_text.h"
#include "bridge/core/exported_values.h"
#include "bridge/launch/launch_from.h"

namespace torchbridge {
namespace {

// Without a launcher all four are needed, and an error names the one that is missing.
bool has_ranks(const EnvMap& environment, bool has_launcher) {
  if (!has_launcher) return environment.has("RANK") || environment.has("WORLD_SIZE");
  return environment.has("RANK") && environment.has("WORLD_SIZE") &&
         environment.has("MASTER_ADDR") && environment.has("MASTER_PORT");
}

// RANK and WORLD_SIZE without an address must be the launcher's: scripts set them from its
// variables, as pyxis does for images of PyTorch. A RANK that is exported for all tasks is right
// for one of them, which has no error where the others do. With ranks=block it is compared when the
// numbers are known (core/user_values.h).
Status check_ranks_alone(const EnvMap& environment, const LaunchFacts& facts,
                         const LaunchOptions& options) {
  if (options.override_user) return Ok{};
  const auto size = environment.get("WORLD_SIZE"), rank = environment.get("RANK");
  const std::string ranks = counted(facts.world_size, "rank");
  if (size && *size != std::to_string(facts.world_size)) {
    return Error{formatted("WORLD_SIZE='{}' is exported, but {} started {}: unset it",
                           printable(*size), facts.launcher, ranks)};
  }
  if (!rank || *rank == std::to_string(facts.rank) || options.ranks == RankRule::kBlock)
    return Ok{};
  return Error{.message = formatted("RANK='{}' is exported, but {} started rank {} of {}: unset it",
                                    printable(*rank), facts.launcher, facts.rank, ranks),
               .only_here = true};
}

// RANK of the plugin is that of the shell, and any other one is not Slurm's.
Status check_shell_of_step(const LaunchOrigin& origin) {
  if (!is_typed_in_shell_of_step(origin.environment)) return Ok{};
  if (!origin.facts || origin.facts->launcher != "slurm" || origin.facts->world_size == 1)
    return Ok{};
  const bool is_of_shell = origin.set_by == SetBy::kPlugin || origin.set_by == SetBy::kExec;
  if (origin.environment.has("RANK") && !is_of_shell) return Ok{};
  return typed_in_shell_of_step(origin.facts->world_size);
}

// Whether RANK and WORLD_SIZE are the launcher's, set by a script as those of enroot's images do,
// and what is missing beside them is known to the launcher alone. PMI answers a rank once, and the
// program may call MPI_Init.
bool is_layout_missing(const EnvMap& environment, const TorchEnv& given, const LaunchOrigin& origin,
                       const LaunchOptions& options) {
  const Layout& at = given.layout;
  // A script's own layout, as 0 for each task that sees one GPU.
  if (environment.has("LOCAL_RANK") && origin.facts && at.local_rank != origin.facts->local_rank)
    return false;
  return origin.is_launchers(at) && origin.set_by == SetBy::kOthers && at.world_size > 1 &&
         options.ranks != RankRule::kBlock &&
         !(origin.facts->needs_node_exchange() && environment.has("PMI_FD")) &&
         !(environment.has("LOCAL_RANK") && environment.has("LOCAL_WORLD_SIZE") &&
           environment.has("GROUP_RANK") && environment.has("GROUP_WORLD_SIZE"));
}

// `environment`: the origin's without empty values, and `given` what it gives.
Result<Launch> resolve_by(const EnvMap& environment, const Result<TorchEnv>& given,
                          const LaunchOrigin& origin, const LaunchSettings& settings) {
  const bool has_launcher = origin.launcher != nullptr;
  const bool is_given = has_ranks(environment, has_launcher) ||
                        environment.has(kStepRequestVariable);  // of a node without the plugin
  if (is_given && !(settings.options.override_user && has_launcher)) {
    if (!given || !is_layout_missing(environment, *given, origin, settings.options))
      return launch_from_given(given, origin);
    auto completed = launch_from_launcher(*origin.facts, environment, settings);
    // The four are the remedy where the ranks cannot exchange their nodes.
    if (completed || !origin.facts->needs_node_exchange()) return completed;
    return launch_from_given(given, origin);
  }
  if (!has_launcher) return launch_single_process(origin, settings);
  if (!origin.facts) return origin.facts_error;
  const auto fits = check_ranks_alone(environment, *origin.facts, settings.options);
  if (!fits) return fits.error();
  return launch_from_launcher(*origin.facts, environment, settings);
}

}  // namespace

Result<Launch> resolve_launch(const LaunchOrigin& origin, const LaunchSettings& settings) {
  if (const auto checked = check_shell_of_step(origin); !checked) return checked.error();
  const bool has_launcher = origin.launcher != nullptr;
  const bool is_by_hand = !has_launcher && has_ranks(origin.environment, has_launcher);
  const auto [environment, note] = without_empty(origin.environment, is_by_hand);
  auto launch = note.empty()
                    ? resolve_by(origin.environment, origin.given, origin, settings)
                    : resolve_by(environment, given_by(environment, origin), origin, settings);
  if (!launch || note.empty() || launch->env.layout.rank != 0) return launch;
  launch->note = launch->note.empty() ? note : note + "; " + launch->note;
  return launch;
}

Result<Launch> resolve_launch(Exchange& exchange, const ExchangeRanks& ranks,
                              const EnvMap& environment, const LaunchSettings& settings) {
  LaunchFacts facts;
  facts.launcher = "mpi";
  facts.rank = ranks.rank;
  facts.world_size = ranks.world_size;
  facts.local_size = ranks.local_size;
  const auto step = step_options(environment, settings.options);
  if (!step) return step.error();
  return launch_through_exchange(exchange, std::move(facts), *step, environment, settings);
}

Result<Launch> resolve_launch(const EnvMap& environment, const LaunchSettings& settings) {
  return resolve_launch(LaunchOrigin(environment), settings);
}

std::string how_started(const Launch& launch) {
  if (launch.launcher == "none") return "started without a launcher";
  if (launch.launcher.ends_with("://"))
    return formatted("found by {}", launch.launcher);  // an init method that names the ranks
  if (launch.launcher != "environment") return formatted("started by {}", launch.launcher);
  const std::string launcher =
      launch.matching_facts ? formatted(" by {}", launch.matching_facts->launcher) : "";
  return formatted("started{} with torchrun's variables", launcher);
}

}  // namespace torchbridge
