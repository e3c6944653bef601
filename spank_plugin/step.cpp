#include "spank_plugin/step.h"

#include <unistd.h>

#include <algorithm>

#include <slurm/slurm.h>

#include "spank_plugin/step_components.h"

namespace torchbridge {
namespace {

// mpirun starts its daemons by srun, also inside salloc --torch-env. They are not ranks, and would
// pass the variables on to the ranks.
bool is_daemon(const std::vector<std::string>& program) {
  constexpr std::string_view kDaemons[] = {"orted", "prted", "hydra_pmi_proxy",
                                           "hydra_bstrap_proxy"};
  if (program.empty()) return false;
  const std::string name = program.front().substr(program.front().rfind('/') + 1);
  return std::find(std::begin(kDaemons), std::end(kDaemons), name) != std::end(kDaemons);
}

}  // namespace

std::optional<StepIds> ids_of(spank_t spank) {
  const auto job = item<std::uint32_t>(spank, S_JOB_ID),
             step = item<std::uint32_t>(spank, S_JOB_STEPID);
  if (!job || !step) return std::nullopt;
  const auto jobs = jobs_of_components(job_environment(spank), *job);
  return StepIds{.job = *job, .leader = jobs.empty() ? *job : jobs.front(), .step = *step};
}

EnvMap job_environment(spank_t spank) {
  const auto variables = item<char**>(spank, S_JOB_ENV);
  if (!variables) return {};
  return EnvMap::from(*variables != nullptr ? *variables : environ);  // null in srun
}

std::vector<std::string> program_of(spank_t spank) {
  int count = 0;
  char** arguments = nullptr;
  if (spank_get_item(spank, S_JOB_ARGV, &count, &arguments) != ESPANK_SUCCESS) return {};
  return {arguments, arguments + count};
}

std::optional<UserIds> user_of(spank_t spank) {
  const auto user = item<uid_t>(spank, S_JOB_UID);
  const auto group = item<gid_t>(spank, S_JOB_GID);
  if (!user || !group) return std::nullopt;
  return UserIds{*user, *group};
}

std::optional<std::size_t> local_task_of(spank_t spank) {
  const auto task = item<int>(spank, S_TASK_ID);
  if (!task || *task < 0) return std::nullopt;
  return static_cast<std::size_t>(*task);
}

bool is_normal_step(spank_t spank) {
  const auto step = item<std::uint32_t>(spank, S_JOB_STEPID);
  return step && *step < SLURM_MAX_NORMAL_STEP_ID;
}

bool is_rank_step(spank_t spank) { return is_normal_step(spank) && !is_daemon(program_of(spank)); }

}  // namespace torchbridge
