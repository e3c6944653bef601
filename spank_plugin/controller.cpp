#include "controller.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <string>

#include <torchbridge/core/host_text.h>
#include <torchbridge/core/hostlist.h>
#include <torchbridge/net/address.h>

#include "as_user.h"
#include "placement.h"

// Slurm's own processes have them; found at run time, for the plugin links no libslurm.
extern "C" {
__attribute__((weak)) decltype(slurm_job_step_layout_get) slurm_job_step_layout_get;
__attribute__((weak)) decltype(slurm_job_step_layout_free) slurm_job_step_layout_free;
__attribute__((weak)) decltype(slurm_strerror) slurm_strerror;
__attribute__((weak)) decltype(slurm_kill_job_step) slurm_kill_job_step;
__attribute__((weak)) decltype(slurm_load_node_single) slurm_load_node_single;
__attribute__((weak)) decltype(slurm_free_node_info_msg) slurm_free_node_info_msg;
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

[[maybe_unused]] void call(KillOfTwoIds kill, std::uint32_t job_id, std::uint32_t step_id) {
  kill(job_id, step_id, SIGKILL);
}
[[maybe_unused]] void call(KillWithFlags kill, std::uint32_t job_id, std::uint32_t step_id) {
  kill(job_id, step_id, SIGKILL, 0);
}
[[maybe_unused]] void call(KillOfStepId kill, std::uint32_t job_id, std::uint32_t step_id) {
  slurm_step_id_t id = step_id_of(job_id, step_id, NO_VAL);
  kill(&id, SIGKILL, 0);
}

// Without ranks where there is no such step, or no longer. `number`: of a component in a heterogeneous step of an
// ordinary job.
Result<StepComponent> ask_component(std::uint32_t job_id, std::uint32_t step_id, std::optional<std::uint32_t> number) {
  if (slurm_job_step_layout_get == nullptr || slurm_job_step_layout_free == nullptr) {
    return Error{"this process of Slurm has no slurm_job_step_layout_get"};
  }
  slurm_step_id_t id = step_id_of(job_id, step_id, number.value_or(NO_VAL));
  slurm_step_layout_t* layout = slurm_job_step_layout_get(&id);
  if (layout == nullptr) {
    const int error = errno;
    // 22.05 says EINVAL for a step that it does not know.
    if (error == EINVAL || error == ESLURM_INVALID_JOB_ID || error == ESLURM_ALREADY_DONE) return StepComponent();
    return Error{slurm_strerror != nullptr ? slurm_strerror(error) : "error " + std::to_string(error)};
  }
  std::vector<std::vector<std::uint32_t>> ranks;
  for (std::uint32_t node = 0; node < layout->node_cnt; ++node)
    ranks.emplace_back(layout->tids[node], layout->tids[node] + layout->tasks[node]);
  auto component = component_of(layout->node_list != nullptr ? layout->node_list : "", ranks);
  slurm_job_step_layout_free(layout);
  return component;
}

// Whether nodes of the step may need an address in the place of a name, as this host does. The system's resolver may take
// minutes, and the step waits for srun meanwhile, so a child asks it, for three seconds.
bool needs_addresses(const EnvMap& environment, const Options& options) {
  const auto nodes = parse_hostlist(environment.get("SLURM_NODELIST").value_or(""));
  const bool is_named = options.addr.kind == AddressRule::Kind::kAuto || options.addr.depends_on_interfaces();
  const bool is_exported = environment.has("MASTER_ADDR") && !options.override_user;
  if (!nodes || nodes->size() < 2 || !is_named || is_exported) return false;
  return !run_as_user(geteuid(), getegid(), [&] {
    if (!numeric_address(nodes->front())) throw std::runtime_error("unknown");
  });
}

// The NodeAddr of rank 0's node; empty where it is not known.
std::string address_of_first(const std::vector<StepComponent>& components, RankRule rule) {
  const bool is_block = rule == RankRule::kBlock;
  const auto names = parse_hostlist(components.front().nodes);
  if (slurm_load_node_single == nullptr || slurm_free_node_info_msg == nullptr || !names) return {};
  if (is_block && components.size() > 1) return {};  // the first by name may be of any component
  std::string name = (*names)[is_block ? 0 : components.front().node_of_rank.front()];
  node_info_msg_t* answer = nullptr;
  if (slurm_load_node_single(&answer, name.data(), 0) != SLURM_SUCCESS) return {};
  const bool is_told = answer->record_count == 1 && answer->node_array[0].node_addr != nullptr;
  std::string address = is_told ? answer->node_array[0].node_addr : "";
  slurm_free_node_info_msg(answer);
  return is_host_text(address) ? address : std::string();
}

}  // namespace

Result<std::string> record_of_step(spank_t spank, const EnvMap& environment, int world_size, const Options& options,
                                   bool in_srun) {
  const auto ids = ids_of(spank);
  std::uint32_t tasks = 0;
  if (!ids || spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS) {
    return Error{"Slurm does not tell the plugin the step's id and number of tasks"};
  }
  const StepShape shape{.job_id = ids->job, .world_size = world_size, .component_tasks = static_cast<int>(tasks)};
  const bool ranks_are_known = options.ranks == RankRule::kBlock || environment_tells_placement(environment, shape);
  const bool wants_address = in_srun && needs_addresses(environment, options);
  if (ranks_are_known && !wants_address) return std::string();
  const auto ask = [&](std::uint32_t job, auto number) { return ask_component(job, ids->step, number); };
  auto components = components_of_step(environment, shape, ask);
  if (!components) return components.error();
  if (components->empty()) return std::string();
  const std::string address = wants_address ? address_of_first(*components, options.ranks) : std::string();
  if (ranks_are_known) components->clear();
  if (components->empty() && address.empty()) return std::string();
  return step_record(std::string(environment.get("SLURM_JOB_ID").value_or("")) + "." + std::to_string(ids->step),
                     *components, address);
}

void kill_step(const StepIds& ids) {
  if (slurm_kill_job_step != nullptr) call(&slurm_kill_job_step, ids.leader, ids.step);
}

}  // namespace torchbridge
