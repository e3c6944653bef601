#include "controller.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <cerrno>
#include <string>

// Slurm's own processes have them; found at run time, for the plugin links no libslurm.
extern "C" __attribute__((weak)) slurm_step_layout_t* slurm_job_step_layout_get(slurm_step_id_t* step_id);
extern "C" __attribute__((weak)) void slurm_job_step_layout_free(slurm_step_layout_t* layout);
extern "C" __attribute__((weak)) char* slurm_strerror(int error);

namespace torchbridge {

Result<ComponentRanks> ask_component(std::uint32_t job_id, std::uint32_t step_id, std::optional<std::uint32_t> number) {
  if (slurm_job_step_layout_get == nullptr || slurm_job_step_layout_free == nullptr) {
    return Error{"this process of Slurm has no slurm_job_step_layout_get"};
  }
  slurm_step_id_t id{};
  id.job_id = job_id;
  id.step_id = step_id;
  id.step_het_comp = number.value_or(NO_VAL);
  slurm_step_layout_t* layout = slurm_job_step_layout_get(&id);
  if (layout == nullptr) {
    const int error = errno;
    // 22.05 says EINVAL for a step that it does not know.
    if (error == EINVAL || error == ESLURM_INVALID_JOB_ID || error == ESLURM_ALREADY_DONE) return ComponentRanks();
    return Error{slurm_strerror != nullptr ? slurm_strerror(error) : "error " + std::to_string(error)};
  }
  ComponentRanks component(layout->node_cnt);
  for (std::uint32_t node = 0; node < layout->node_cnt; ++node) {
    component[node].assign(layout->tids[node], layout->tids[node] + layout->tasks[node]);
  }
  slurm_job_step_layout_free(layout);
  return component;
}

}  // namespace torchbridge
