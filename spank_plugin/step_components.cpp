#include "spank_plugin/step_components.h"

#include <algorithm>
#include <utility>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

constexpr std::size_t kMaxComponents = 128;  // MAX_HET_JOB_COMPS of Slurm

Error controller_error(const std::string& why) {
  return {
      formatted("slurm: cannot get the nodes of the ranks from Slurm's controller: {}: give "
                "ranks=block, which does not need them",
                why)};
}

}  // namespace

// srun sets PACK_GROUP for a job that it has created itself, salloc and sbatch set HET_GROUP. An
// ordinary job may have inherited the variables of another job.
std::vector<std::uint32_t> jobs_of_components(const EnvMap& environment, std::uint32_t own) {
  std::vector<std::uint32_t> jobs;
  while (true) {
    const std::string number = std::to_string(jobs.size());
    auto job = environment.get("SLURM_JOB_ID_PACK_GROUP_" + number);
    if (!job) job = environment.get("SLURM_JOB_ID_HET_GROUP_" + number);
    const auto id = job ? parse_integer(*job, 1, UINT32_MAX) : std::nullopt;
    if (!id) break;
    jobs.push_back(static_cast<std::uint32_t>(*id));
  }
  if (std::find(jobs.begin(), jobs.end(), own) == jobs.end()) jobs.clear();
  return jobs;
}

bool environment_has_placement(const EnvMap& environment, const StepShape& step) {
  if (step.has_components()) return false;
  return !environment.get("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary");
}

Result<std::vector<StepComponent>> components_of_step(const EnvMap& environment,
                                                      const StepShape& step,
                                                      const AskComponent& ask) {
  const auto jobs = jobs_of_components(environment, step.job_id);
  const bool numbered = jobs.empty() && step.has_components();
  const std::size_t questions = numbered ? kMaxComponents : std::max<std::size_t>(jobs.size(), 1);
  std::vector<StepComponent> components;
  std::size_t placed = 0;
  for (std::size_t i = 0; i < questions && placed < static_cast<std::size_t>(step.world_size);
       ++i) {
    const auto number = numbered ? std::optional(static_cast<std::uint32_t>(i)) : std::nullopt;
    auto component = ask(jobs.empty() ? step.job_id : jobs[i], number);
    if (!component) return controller_error(component.error().message);
    placed += component->node_of_rank.size();
    if (!component->node_of_rank.empty())
      components.push_back(std::move(*component));
    else if (numbered)
      break;  // components without a number are jobs, which a step may leave out (--het-group)
  }
  if (placed > static_cast<std::size_t>(step.world_size)) {
    return controller_error(
        formatted("its lists have more than the {} tasks of this step", step.world_size));
  }
  if (placed < static_cast<std::size_t>(step.world_size)) components.clear();
  return components;
}

}  // namespace torchbridge
