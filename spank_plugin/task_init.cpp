#include "task_init.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <torchbridge/core/launchers/slurm.h>
#include <torchbridge/core/outer_run.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/node_check.h>
#include <torchbridge/task/task_environment.h>

#include "controller.h"
#include "placement.h"
#include "step.h"
#include "step_ending.h"
#include "task_report.h"

namespace torchbridge {
namespace {

[[noreturn]] void stop_after(const std::string& table) {
  dprintf(STDOUT_FILENO, "%s", table.c_str());
  _exit(EXIT_SUCCESS);
}

// The environment as the user gave it.
EnvMap without_ours(spank_t spank, const EnvMap& given) {
  EnvMap rest;
  for (const auto& [name, value] : given) {
    if (is_ours(name, value)) {
      spank_unsetenv(spank, name.c_str());
    } else {
      rest.set(name, value);
    }
  }
  return rest;
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

// Another copy of this plugin has been here: the environment is made.
bool is_second_copy(const EnvMap& environment) {
  if (first_time_in_this_process()) return false;
  if (environment.get("SLURM_LOCALID") == "0") {
    tell_task("plugstack.conf on " + host_name() + " loads the plugin twice: remove one of the lines");
  }
  return true;
}

// Completes the facts where the variables do not tell on which node each rank is. One task of the node asks Slurm's
// controller where srun's answer does not reach: the other components of a heterogeneous step, `srun --async`.
Status add_placement(spank_t spank, const TaskBoard& board, EnvMap& environment, LaunchFacts& facts) {
  const std::string step = facts.job_id + "." + facts.step_id;
  Result<std::string> record = std::string(environment.get(kStepRecordVariable).value_or(""));
  if (!facts.node_of_rank.empty()) return Ok{};
  const auto ask = [&] {
    wait_among_nodes(spank, 1);
    return record_of_step(spank, environment, facts.world_size, {}, false);
  };
  if (!is_cut(*record, step)) record = board.ask_once(ask);
  if (!record) return record.error();
  if (is_cut(*record, step)) {
    return Error{"the nodes of " + std::to_string(facts.world_size) +
                 " ranks that were placed one by one do not fit into a variable of " +
                 std::to_string(kMaxStepRecord / 1024) + " KiB: give ranks=block"};
  }
  if (record->empty()) return Ok{};  // and what srun wrote of an address stays
  facts.node_of_rank = node_of_rank_in(*record, step, facts.nodes, facts.world_size);
  environment.set(kStepRecordVariable, *record);  // for the program
  spank_setenv(spank, kStepRecordVariable, record->c_str(), 1);
  return Ok{};
}

StepPlan plan_of(spank_t spank, const TaskBoard& board, const StepEnding& end, EnvMap& environment,
                 const Options& options) {
  auto facts = read_slurm(environment);
  if (!facts) end.by(facts.error());
  if (options.ranks != RankRule::kBlock) {
    if (const auto added = add_placement(spank, board, environment, *facts); !added) end.by(added.error());
  }
  constexpr std::chrono::seconds kTimeout{60};  // nodes of a large step start one after the other
  const auto step = step_options(environment, options);
  if (!step) end.by(step.error());
  auto plan = plan_step(std::move(*facts), *step, std::nullopt, kTimeout);
  if (!plan) end.by(plan.error());
  return std::move(*plan);
}

void wait_for_nodes(const StepEnding& end, const StepPlan& plan, const std::string& token, const EnvMap& complete) {
  const NodeCheck check{.token = token, .hint = " (or is torch_env.so missing in its plugstack.conf?)"};
  const auto table = check_nodes(plan, complete, check);
  if (!table) end.by(table.error());
  if (plan.options.explain) stop_after(*table);
}

// For task_exit.
void leave_record(spank_t spank, const TaskBoard& board, int rank, const EnvMap& complete) {
  TaskRecord* record = record_of_task(spank, board);
  if (record == nullptr) return;
  write_record(*record, rank, std::string(complete.get("TORCHELASTIC_ERROR_FILE").value_or("")));
}

}  // namespace

void export_torch_env(spank_t spank, const NodeState& node) {
  const EnvMap given = job_environment(spank);
  const EnvMap inherited = without_ours(spank, given);
  if (!is_rank_step(spank)) return;
  const ReporterAddress reporter = reporter_in(given);
  const StepEnding end(spank, node.board, reporter);
  const auto options = asked_options(node.lists, given);
  if (!options) end.by(options.error());
  if (!*options) return;
  EnvMap environment = without_outer_step(spank, inherited);
  let_slurm_end_us();
  setenv("RES_OPTIONS", "timeout:2 attempts:2", 1);  // for a silent name server; the program's environment is another
  if (is_second_copy(environment)) return;

  const StepPlan plan = plan_of(spank, node.board, end, environment, **options);
  auto port = reserve_store_socket(plan, environment);
  if (!port) end.by(port.error());
  const auto task = task_environment(plan, environment, *port, program_of(spank));
  if (!task) end.by(task.error());
  const EnvMap complete = with_variables(environment, task->variables);
  // No program starts before all tasks have come so far.
  if ((*options)->explain || (*options)->check.value_or(0) != 0) wait_for_nodes(end, plan, reporter.token, complete);
  for (const auto& [name, value] : task->variables) {
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS) end.by({"Slurm refused to set " + name});
  }
  for (const auto& note : task->notes) tell_task(note);
  leave_record(spank, node.board, plan.env.layout.rank, complete);
  (void)port->release();  // the program's from here on
}

}  // namespace torchbridge
