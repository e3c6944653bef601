#include "bridge/launch/launch.h"

#include "bridge/core/launcher.h"
#include "bridge/core/launchers/slurm.h"
#include "bridge/core/nested_launch.h"
#include "bridge/launch/launch_from.h"
#include "bridge/launch/launcher_of_process.h"

namespace torchbridge {
namespace {

// RANK and LOCAL_RANK without the other variables: pyxis sets these two to the task's own for images of PyTorch. The
// rest is found here. A RANK that a user exported for all tasks comes without PYTORCH_VERSION.
bool has_only_ranks_of_pyxis(const EnvMap& environment) {
  const bool complete =
      environment.has("WORLD_SIZE") && environment.has("MASTER_ADDR") && environment.has("MASTER_PORT");
  const auto is_same = [&](const char* name, const char* of_slurm) {
    return environment.has(name) && environment.get(name) == environment.get(of_slurm);
  };
  return !complete && environment.has("PYTORCH_VERSION") && detect_slurm(environment) &&
         is_same("RANK", "SLURM_PROCID") && is_same("LOCAL_RANK", "SLURM_LOCALID");
}

}  // namespace

EnvMap without_outer_launch(const EnvMap& environment) {
  if (!is_set_by_us(environment)) return environment;
  const auto facts = launcher_facts(environment);
  return facts ? without_outer_run(environment, *facts) : environment;
}

int presumed_rank(const EnvMap& inherited) {
  const EnvMap environment = without_outer_launch(inherited);
  const auto facts = launcher_facts(environment);
  const auto env = torch_env_from(environment);
  if (env && check_against_launcher(*env, environment)) return env->layout.rank;
  if (facts) return facts->rank;  // the exported RANK contradicts the launcher, or the other variables are missing
  const bool one_of_several =
      environment.has("WORLD_SIZE") || environment.has("MASTER_ADDR") || environment.has("MASTER_PORT");
  const auto rank = environment.integer("RANK", 0, INT32_MAX);
  return one_of_several && rank && *rank ? static_cast<int>(**rank) : 0;
}

Result<Launch> resolve_launch(const EnvMap& inherited, const LaunchSettings& settings) {
  const EnvMap environment = without_outer_launch(inherited);
  const auto launcher = find_launcher(environment, slurm_task_or_self(environment));
  const bool no_launcher = launcher && *launcher == nullptr;
  const bool replaced = settings.options.override_user && !no_launcher;
  const bool has_rank = environment.has("RANK") && !has_only_ranks_of_pyxis(environment);
  const bool is_given = has_rank || environment.has(kStepRequestVariable);  // the latter on a node without the plugin
  if ((is_given && !replaced) || (no_launcher && environment.has("WORLD_SIZE"))) return launch_from_env(environment);
  if (!launcher) return launcher.error();
  if (no_launcher) return launch_single_process(settings);

  auto facts = (*launcher)->read(environment);
  if (!facts) return facts.error();
  const auto exported = environment.get("WORLD_SIZE");
  if (exported && *exported != std::to_string(facts->world_size) && !settings.options.override_user) {
    return Error{"WORLD_SIZE='" + printable(*exported) + "' is exported, but " + facts->launcher + " started " +
                 std::to_string(facts->world_size) + (facts->world_size == 1 ? " rank" : " ranks") + ": unset it"};
  }
  return launch_from_launcher(std::move(*facts), environment, settings);
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
  return launch_through_exchange(exchange, std::move(facts), *step, environment, settings);
}

Result<Launch> resolve_launch(const EnvMap& environment, std::chrono::milliseconds timeout) {
  LaunchSettings settings;
  settings.timeout = timeout;
  return resolve_launch(environment, settings);
}

}  // namespace torchbridge
