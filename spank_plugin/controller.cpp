#include "controller.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>

#include <torchbridge/core/hostlist.h>

// Slurm's own processes have them; found at run time, for the plugin links no libslurm.
extern "C" {
__attribute__((weak)) decltype(slurm_job_step_layout_get) slurm_job_step_layout_get;
__attribute__((weak)) decltype(slurm_job_step_layout_free) slurm_job_step_layout_free;
__attribute__((weak)) decltype(slurm_strerror) slurm_strerror;
__attribute__((weak)) decltype(slurm_kill_job_step) slurm_kill_job_step;
}

namespace torchbridge {
namespace {

slurm_step_id_t step_id_of(std::uint32_t job_id, std::uint32_t step_id, std::uint32_t component) {
  slurm_step_id_t id{};
  id.job_id = job_id;
  id.step_id = step_id;
  id.step_het_comp = component;
  return id;
}

// slurm_kill_job_step as releases declare it: up to 23.02, from 23.11 on, from 25.11 on.
using KillOfTwoIds = int (*)(std::uint32_t job_id, std::uint32_t step_id, std::uint16_t signal);
using KillWithFlags = int (*)(std::uint32_t job_id, std::uint32_t step_id, std::uint16_t signal, std::uint16_t flags);
using KillOfStepId = int (*)(slurm_step_id_t* id, std::uint16_t signal, std::uint16_t flags);

[[maybe_unused]] void call(KillOfTwoIds kill, std::uint32_t job_id, std::uint32_t step_id) { kill(job_id, step_id, SIGKILL); }
[[maybe_unused]] void call(KillWithFlags kill, std::uint32_t job_id, std::uint32_t step_id) { kill(job_id, step_id, SIGKILL, 0); }
[[maybe_unused]] void call(KillOfStepId kill, std::uint32_t job_id, std::uint32_t step_id) {
  slurm_step_id_t id = step_id_of(job_id, step_id, NO_VAL);
  kill(&id, SIGKILL, 0);
}

}  // namespace

Result<Component> ask_component(std::uint32_t job_id, std::uint32_t step_id, std::optional<std::uint32_t> number) {
  if (slurm_job_step_layout_get == nullptr || slurm_job_step_layout_free == nullptr) {
    return Error{"this process of Slurm has no slurm_job_step_layout_get"};
  }
  slurm_step_id_t id = step_id_of(job_id, step_id, number.value_or(NO_VAL));
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

void kill_step(std::uint32_t job_id, std::uint32_t step_id) {
  if (slurm_kill_job_step != nullptr) call(&slurm_kill_job_step, job_id, step_id);
}

}  // namespace torchbridge
