#include "task_init.h"

#include <slurm/slurm.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <torchbridge/core/launchers/slurm.h>
#include <torchbridge/core/outer_run.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/node_check.h>
#include <torchbridge/task/task_environment.h>

#include "controller.h"
#include "failure_desk.h"
#include "handshake.h"
#include "placement.h"
#include "step_ending.h"
#include "task_report.h"

namespace torchbridge {
namespace {

[[noreturn]] void stop_after(const std::string& table) {
  dprintf(STDOUT_FILENO, "%s", table.c_str());
  _exit(EXIT_SUCCESS);
}

// A step inside another step, whose variables it inherits: they are not the user's.
EnvMap without_outer_step(spank_t spank, const EnvMap& environment) {
  if (!is_set_by_us(environment)) return environment;
  const auto facts = read_slurm(environment);
  if (!facts) return environment;
  EnvMap rest = without_outer_run(environment, *facts);
  for (const auto& [name, value] : environment) {
    if (!rest.has(name)) spank_unsetenv(spank, name.c_str());
  }
  return rest;
}

// What the user asks for; nothing where nobody asks for the plugin. srun's plugin may have heard what this node's does not.
std::optional<Options> asked(const StepEnding& end, const Settings& settings, const Announcement& announcement, const EnvMap& environment) {
  if (const auto same = same_version(announcement, host_name()); !same) end.by_each_node(same.error());
  auto options = settings.resolve(environment.get(kOptionsVariable));
  if (!options) end.by_each_node({options.error().message + " (on " + host_name() + ")"});
  if (!*options && !announcement.version.empty()) {
    end.by_each_node({"srun asks for torchrun's environment, but neither --torch-env nor TORCHBRIDGE_OPTIONS reaches " + host_name() +
                      ": give srun the option, or --export=ALL"});
  }
  return std::move(*options);
}

// Another copy of this plugin has been here: the environment is made.
bool is_second_copy(const EnvMap& environment) {
  if (first_time_in_this_process()) return false;
  if (environment.get("SLURM_LOCALID") == "0") {
    tell_task("plugstack.conf on " + host_name() + " loads the plugin twice: remove one of the lines");
  }
  return true;
}

// Nothing where the variables tell it: asked of Slurm's controller by one task of the node.
Result<NodeOfRank> node_of_rank(spank_t spank, const SharedPlacement& placement, const EnvMap& environment, const LaunchFacts& facts) {
  uint32_t job = 0, step = 0, tasks = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS) {
    return Error{"Slurm does not tell the plugin the step's id and number of tasks"};
  }
  const StepShape shape{.job_id = job, .world_size = facts.world_size, .component_tasks = static_cast<int>(tasks)};
  if (environment_tells_placement(environment, shape)) return NodeOfRank();
  return placement.ask_once([&]() -> Result<NodeOfRank> {
    const auto ask = [step](uint32_t job_id, auto number) { return ask_component(job_id, step, number); };
    const auto names = placement_of_step(environment, shape, ask);
    if (!names) return names.error();
    return numbers_of(*names, facts.nodes);
  });
}

StepPlan plan_of(spank_t spank, const NodeState& node, const StepEnding& end, const EnvMap& environment, const Options& options) {
  auto facts = read_slurm(environment);
  if (!facts) end.by_each_node(facts.error());
  if (options.ranks != RankRule::kBlock) {
    auto placement = node_of_rank(spank, node.placement, environment, *facts);
    if (!placement) end.by_this_task(placement.error());
    facts->node_of_rank = std::move(*placement);
  }
  constexpr std::chrono::seconds kTimeout{60};  // nodes of a large step start one after the other
  auto plan = plan_step(std::move(*facts), environment, options, kTimeout);
  if (!plan) end.by_each_node(plan.error());
  return std::move(*plan);
}

void meet(const StepEnding& end, const StepPlan& plan, const EnvMap& given, const EnvMap& complete, const Options& options) {
  NodeCheck check{.token = {}, .hint = " (or is torch_env.so missing in its plugstack.conf?)"};
  if (const auto desk = DeskAddress::from(given)) check.token = desk->token;
  const auto table = check_nodes(plan, complete, options, check);
  if (!table) end.by_this_task(table.error());
  if (options.explain) stop_after(*table);
}

// For task_exit.
void leave_record(spank_t spank, const TaskBoard& board, int rank, const EnvMap& given, const EnvMap& complete) {
  int local_task = 0;
  if (spank_get_item(spank, S_TASK_ID, &local_task) != ESPANK_SUCCESS) return;
  TaskRecord* record = board.record_of(local_task);
  if (record == nullptr) return;
  write_record(*record, given, rank, std::string(complete.get("TORCHELASTIC_ERROR_FILE").value_or("")));
}

// Its name and arguments.
std::vector<std::string> program_of(spank_t spank) {
  int count = 0;
  char** arguments = nullptr;
  if (spank_get_item(spank, S_JOB_ARGV, &count, &arguments) != ESPANK_SUCCESS) return {};
  return {arguments, arguments + count};
}

// mpirun starts its daemons by srun, inside salloc --torch-env too: they are no ranks, and would pass on what they are given.
bool starts_daemons(spank_t spank) {
  constexpr std::string_view kDaemons[] = {"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy"};
  const auto program = program_of(spank);
  if (program.empty()) return false;
  const std::string name = program.front().substr(program.front().rfind('/') + 1);
  return std::find(std::begin(kDaemons), std::end(kDaemons), name) != std::end(kDaemons);
}

}  // namespace

EnvMap job_environment(spank_t spank) {
  char** variables = nullptr;
  return spank_get_item(spank, S_JOB_ENV, &variables) == ESPANK_SUCCESS ? EnvMap::from(variables) : EnvMap();
}

bool is_rank_step(spank_t spank) {
  uint32_t step = 0;
  if (starts_daemons(spank)) return false;
  return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step < SLURM_MAX_NORMAL_STEP_ID;
}

void export_torch_env(spank_t spank, const NodeState& node) {
  const EnvMap given = job_environment(spank);
  const Announcement announcement = announcement_in(given);
  for (const auto& name : announcement.names) spank_unsetenv(spank, name.c_str());
  const EnvMap inherited = without(announcement, given);
  if (!is_rank_step(spank)) return;
  const StepEnding end(spank, node.board, given);
  const auto options = asked(end, node.settings, announcement, inherited);
  if (!options) return;
  const EnvMap environment = without_outer_step(spank, inherited);
  let_slurm_end_us();
  if (is_second_copy(environment)) return;

  const StepPlan plan = plan_of(spank, node, end, environment, *options);
  auto port = reserve_store_socket(plan, environment);
  if (!port) end.by_this_task(port.error());
  const auto task = task_environment(plan, environment, *options, *port, program_of(spank));
  if (!task) end.by_each_node(task.error());
  const EnvMap complete = with_variables(environment, task->variables);
  if (options->explain || options->check.value_or(0) != 0) meet(end, plan, given, complete, *options);
  for (const auto& [name, value] : task->variables) {
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS) {
      end.by_this_task({"Slurm refused to set " + name});
    }
  }
  for (const auto& note : task->notes) tell_task(note);
  leave_record(spank, node.board, plan.env.layout.rank, given, complete);
  (void)port->release();  // the program's from here on
}

}  // namespace torchbridge
