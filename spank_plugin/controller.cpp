#include "spank_plugin/controller.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <type_traits>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "bridge/base/host_text.h"
#include "bridge/base/hostlist.h"
#include "bridge/base/message_text.h"
#include "bridge/net/address.h"
#include "bridge/step/step_plan.h"
#include "spank_plugin/as_user.h"
#include "spank_plugin/step_components.h"

// Resolved at run time from the Slurm process that loads the plugin, which links no libslurm. Null
// where it has none.
extern "C" {
__attribute__((weak)) decltype(slurm_job_step_layout_get) slurm_job_step_layout_get;
__attribute__((weak)) decltype(slurm_job_step_layout_free) slurm_job_step_layout_free;
__attribute__((weak)) decltype(slurm_strerror) slurm_strerror;
__attribute__((weak)) decltype(slurm_kill_job_step) slurm_kill_job_step;
__attribute__((weak)) decltype(slurm_load_ctl_conf) slurm_load_ctl_conf;
__attribute__((weak)) decltype(slurm_load_job) slurm_load_job;
__attribute__((weak)) decltype(slurm_free_job_info_msg) slurm_free_job_info_msg;
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

// slurm_kill_job_step as releases declare it: with two ids up to 23.02, with flags from 23.11 on,
// with one id from 25.11 on.
template <class... Arguments>
void send_kill(int (*kill)(Arguments...), std::uint32_t job_id, std::uint32_t step_id) {
  if constexpr (sizeof...(Arguments) == 4) {
    kill(job_id, step_id, SIGKILL, 0);
  } else if constexpr (std::is_invocable_v<decltype(kill), std::uint32_t, std::uint32_t,
                                           std::uint16_t>) {
    kill(job_id, step_id, SIGKILL);
  } else {
    slurm_step_id_t id = step_id_of(job_id, step_id, NO_VAL);
    kill(&id, SIGKILL, 0);
  }
}

// slurm_load_job as releases declare it: with a job's number up to 25.11, with the id of a step
// from 26.05 on.
template <class Id>
job_info_msg_t* load_job(int (*load)(job_info_msg_t**, Id, std::uint16_t), std::uint32_t job_id) {
  job_info_msg_t* answer = nullptr;
  int error = SLURM_SUCCESS;
  if constexpr (std::is_integral_v<Id>) {
    error = load(&answer, job_id, 0);
  } else {
    error = load(&answer, step_id_of(job_id, NO_VAL, NO_VAL), 0);
  }
  return error == SLURM_SUCCESS ? answer : nullptr;
}

// A component without ranks where the step does not exist or has ended. `number`: of the component,
// in a heterogeneous step of an ordinary job.
Result<StepComponent> ask_component(std::uint32_t job_id, std::uint32_t step_id,
                                    std::optional<std::uint32_t> number) {
  if (slurm_job_step_layout_get == nullptr || slurm_job_step_layout_free == nullptr) {
    return Error{"this process of Slurm has no slurm_job_step_layout_get"};
  }
  slurm_step_id_t id = step_id_of(job_id, step_id, number.value_or(NO_VAL));
  slurm_step_layout_t* layout = slurm_job_step_layout_get(&id);
  if (layout == nullptr) {
    const int error = errno;
    // 22.05 returns EINVAL for an unknown step.
    if (error == EINVAL || error == ESLURM_INVALID_JOB_ID || error == ESLURM_ALREADY_DONE)
      return StepComponent();
    return Error{slurm_strerror != nullptr ? slurm_strerror(error) : formatted("error {}", error)};
  }
  StepComponent component{layout->node_list != nullptr ? layout->node_list : "", {}};
  component.node_of_rank.resize(layout->task_cnt, -1);
  for (std::uint32_t node = 0; node < layout->node_cnt; ++node) {
    for (std::uint32_t task = 0; task < layout->tasks[node]; ++task)
      component.node_of_rank.at(layout->tids[node][task]) = static_cast<int>(node);
  }
  slurm_job_step_layout_free(layout);
  return component;
}

// Whether the nodes may need the address of rank 0's node instead of its name: assumed where this
// host does not resolve the name of the first node. A child asks the system's resolver, for at most
// three seconds: the resolver may take minutes, and the step waits for srun meanwhile.
bool needs_addresses(const EnvMap& environment, const LaunchOptions& options) {
  const auto nodes = parse_hostlist(environment.get("SLURM_NODELIST").value_or(""));
  const auto step = step_options(environment, options);
  if (!nodes || nodes->size() < 2 || !step) return false;
  if (!step->options.addr.is_by_node_name()) return false;
  constexpr std::chrono::seconds kLimit{3};
  return !run_as_user({geteuid(), getegid()}, kLimit,
                      [&] { return bool(numeric_address(nodes->front())); });
}

// The NodeAddr of rank 0's node; empty where it is unknown.
std::string rank0_node_address(const std::vector<StepComponent>& components, RankRule rule) {
  const bool is_block = rule == RankRule::kBlock;
  const auto names = parse_hostlist(components.front().nodes);
  if (!names || (is_block && components.size() > 1))
    return {};  // the first node by name may be in any component
  return node_addr_of((*names)[is_block ? 0 : components.front().node_of_rank.front()]);
}

std::optional<StepShape> shape_of(spank_t spank, int world_size) {
  const auto job = item<std::uint32_t>(spank, S_JOB_ID);
  const auto tasks = item<std::uint32_t>(spank, S_JOB_TOTAL_TASK_COUNT);
  if (!job || !tasks) return std::nullopt;
  return StepShape{
      .job_id = *job, .world_size = world_size, .component_tasks = static_cast<int>(*tasks)};
}

}  // namespace

bool has_placement(spank_t spank, const EnvMap& environment, int world_size) {
  const auto shape = shape_of(spank, world_size);
  return shape && environment_has_placement(environment, *shape);
}

Result<std::string> record_of_step(spank_t spank, const EnvMap& environment, int world_size,
                                   const LaunchOptions& options, bool in_srun) {
  const auto ids = ids_of(spank);
  const auto shape = shape_of(spank, world_size);
  if (!ids || !shape) return Error{"Slurm gives the plugin no step id or no number of tasks"};
  const bool ranks_are_known =
      options.ranks == RankRule::kBlock || environment_has_placement(environment, *shape);
  const bool wants_address = in_srun && needs_addresses(environment, options);
  if (ranks_are_known && !wants_address) return std::string();
  const auto ask = [&](std::uint32_t job, auto number) {
    return ask_component(job, ids->step, number);
  };
  auto components = components_of_step(environment, *shape, ask);
  if (!components) return components.error();
  if (components->empty()) return std::string();
  const std::string address =
      wants_address ? rank0_node_address(*components, options.ranks) : std::string();
  if (ranks_are_known) components->clear();
  if (components->empty() && address.empty()) return std::string();
  return step_record(
      std::string(environment.get("SLURM_JOB_ID").value_or("")) + "." + std::to_string(ids->step),
      *components, address);
}

std::string node_addr_of(std::string name) {
  node_info_msg_t* answer = nullptr;
  if (slurm_load_node_single == nullptr || slurm_free_node_info_msg == nullptr) return {};
  if (slurm_load_node_single(&answer, name.data(), 0) != SLURM_SUCCESS) return {};
  const bool has_address = answer->record_count == 1 && answer->node_array[0].node_addr != nullptr;
  std::string address = has_address ? answer->node_array[0].node_addr : "";
  slurm_free_node_info_msg(answer);
  return is_host_text(address) ? address : std::string();
}

namespace {

bool kills_on_bad_exit() {
  // Not freed: its function has another name from 26.05 on, and srun asks once.
  slurm_conf_t* conf = nullptr;
  return slurm_load_ctl_conf != nullptr && slurm_load_ctl_conf(0, &conf) == SLURM_SUCCESS &&
         conf->kill_on_bad_exit != 0;
}

}  // namespace

StepState state_of_step(const StepIds& ids) {
  static const bool is_ended_anyway = kills_on_bad_exit();
  if (is_ended_anyway) return StepState::kEnds;
  if (slurm_load_job == nullptr || slurm_free_job_info_msg == nullptr) return StepState::kRuns;
  job_info_msg_t* jobs = load_job(&slurm_load_job, ids.leader);
  if (jobs == nullptr) return StepState::kRuns;
  StepState state = StepState::kRuns;
  if (jobs->record_count > 0) {
    const slurm_job_info_t& job = jobs->job_array[0];
    if (job.preempt_time != 0 || job.job_state != JOB_RUNNING) state = StepState::kEnds;
    if (job.preempt_time == 0 && job.job_state == JOB_SUSPENDED) state = StepState::kIsSuspended;
  }
  slurm_free_job_info_msg(jobs);
  return state;
}

void kill_step(const std::optional<StepIds>& ids) {
  if (ids && slurm_kill_job_step != nullptr)
    send_kill(&slurm_kill_job_step, ids->leader, ids->step);
}

}  // namespace torchbridge
