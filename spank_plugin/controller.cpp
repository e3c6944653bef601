#include "controller.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include <torchbridge/core/hostlist.h>

// Slurm's own processes have them; found at run time, for the plugin links no libslurm.
extern "C" __attribute__((weak)) slurm_step_layout_t* slurm_job_step_layout_get(slurm_step_id_t* step_id);
extern "C" __attribute__((weak)) void slurm_job_step_layout_free(slurm_step_layout_t* layout);
extern "C" __attribute__((weak)) char* slurm_strerror(int error);

namespace torchbridge {

Result<Component> ask_component(std::uint32_t job_id, std::uint32_t step_id, std::optional<std::uint32_t> number) {
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
    if (error == EINVAL || error == ESLURM_INVALID_JOB_ID || error == ESLURM_ALREADY_DONE) return Component();
    return Error{slurm_strerror != nullptr ? slurm_strerror(error) : "error " + std::to_string(error)};
  }
  const auto names = parse_hostlist(layout->node_list != nullptr ? layout->node_list : "");
  Component component;
  for (std::uint32_t node = 0; names && node < std::min<std::size_t>(layout->node_cnt, names->size()); ++node) {
    component.push_back({(*names)[node], {layout->tids[node], layout->tids[node] + layout->tasks[node]}});
  }
  const bool complete = component.size() == layout->node_cnt;
  slurm_job_step_layout_free(layout);
  if (!complete) return Error{"its list of nodes is not complete"};
  return component;
}

}  // namespace torchbridge
