#include "spank_plugin/task_init.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/base/message_text.h"
#include "bridge/core/agent_command.h"
#include "bridge/core/exported_values.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/nested_launch.h"
#include "bridge/net/address.h"
#include "bridge/step/node_check.h"
#include "bridge/step/task_environment.h"
#include "spank_plugin/controller.h"
#include "spank_plugin/step.h"
#include "spank_plugin/step_abort.h"
#include "spank_plugin/task_report.h"

namespace torchbridge {
namespace {

void set_token(spank_t spank, std::string_view token) {
  spank_setenv(spank, kTokenVariable, std::string(token).c_str(), 1);
}

void unset_all_but(spank_t spank, const EnvMap& kept, const EnvMap& environment) {
  for (const auto& [name, value] : environment) {
    if (!kept.has(name)) spank_unsetenv(spank, name.c_str());
  }
}

// Whether another copy of this plugin has set the variables of this task.
bool is_already_set(const EnvMap& environment, const LaunchFacts& facts) {
  if (setter_of(environment).launch != run_id_of(facts)) return false;
  if (facts.local_rank != 0) return true;
  print_task_line(
      formatted("plugstack.conf on {} loads the plugin twice: remove one of the lines", host_name())
          .c_str());
  return true;
}

// Adds the node of each rank where the variables do not contain it, from the controller's answer.
Status add_placement(spank_t spank, const SharedTaskTable& table, EnvMap& environment,
                     LaunchFacts& facts) {
  const std::string step = facts.job_id + "." + facts.step_id;
  if (!facts.node_of_rank.empty()) return Ok{};
  Result<std::string> record = std::string(environment.get(kStepRecordVariable).value_or(""));
  if (!is_truncated(*record, step)) {
    const auto answer = table.answer(SharedTaskTable::kRecord);
    if (!answer && has_placement(spank, environment, facts.world_size)) return Ok{};
    record =
        answer
            ? *answer
            : Error{"slurm: Slurm's controller gave no list of the ranks' nodes: give ranks=block"};
  }
  if (!record) return record.error();
  if (is_truncated(*record, step)) {
    return Error{
        formatted("slurm: the nodes of {} ranks, placed one by one, do not fit into a variable of "
                  "{} KiB: give ranks=block",
                  facts.world_size, kMaxStepRecord / 1024)};
  }
  if (record->empty()) return Ok{};  // keeps an address that srun has set
  facts.node_of_rank = node_of_rank_in(*record, step, facts.nodes, facts.world_size);
  if (facts.node_of_rank.empty()) {
    return Error{
        "slurm: the controller's list of nodes does not match its list of ranks: give ranks=block"};
  }
  environment.set(kStepRecordVariable, *record);  // for the program
  spank_setenv(spank, kStepRecordVariable, record->c_str(), 1);
  return Ok{};
}

// The secret with which agents of `torchbridge run` prove that they belong to the step, where the
// job has none; also for a program that starts one. It is made from the step's, which itself no
// program gets.
void add_agent_token(spank_t spank, const std::string& secret, const EnvMap& environment) {
  if (secret.empty() || !environment.get(kTokenVariable).value_or("").empty()) return;
  set_token(spank, hex_of(hmac_sha256(secret, kTokenVariable)));
}

void wait_for_nodes(const StepAborter& aborter, const StepPlan& plan, const EnvMap& complete) {
  const NodeCheck check{.hint = " (or is torch_env.so missing in its plugstack.conf?)"};
  const std::string table = aborter.value_or_abort(check_nodes(plan, complete, check));
  if (!plan.options.explain) return;
  dprintf(STDOUT_FILENO, "%s", table.c_str());
  _exit(EXIT_SUCCESS);
}

}  // namespace

void export_torch_env(spank_t spank, const NodeState& node) {
  const EnvMap given = job_environment(spank);
  const EnvMap inherited = without_plugin_variables(given);
  unset_all_but(spank, inherited, given);
  if (const auto token = inherited.get(kTokenVariable)) set_token(spank, *token);
  if (!is_rank_step(spank)) return;
  const FailureListenerAddress listener = listener_in(given);
  const StepAborter aborter(node.table, listener.port != 0);
  const auto options = aborter.value_or_abort(requested_options(node.lists, given));
  if (!options) return;
  // Until exec it has slurmstepd's memory, and what it forks keeps that: not the user's to read or
  // dump, whatever fs.suid_dumpable is.
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_NAME, "torch_env");  // proctrack/linuxproc never ends a process called slurmstepd

  LaunchFacts facts = aborter.value_or_abort(read_slurm(inherited));
  const Setter own{SetBy::kPlugin, run_id_of(facts)};
  if (is_already_set(inherited, facts)) return;
  // A step inside another step inherits the outer step's variables, which the user did not export.
  auto [environment, note_on_empty] = without_empty(without_outer_run(inherited, facts));
  unset_all_but(spank, environment, inherited);
  if (options->ranks != RankRule::kBlock)
    aborter.value_or_abort(add_placement(spank, node.table, environment, facts));
  constexpr std::chrono::seconds kTimeout{
      60};  // the nodes of a large step start one after the other
  StepOptions step = aborter.value_or_abort(step_options(environment, *options));
  const auto request = StepRequest::from(given);
  const std::string secret = request ? request->secret : "";
  if (!secret.empty()) step.token = secret;
  const auto names = node.table.answer(SharedTaskTable::kNames);
  HostNames known = HostNames::from(names && *names ? **names : "");
  StepPlan plan = aborter.value_or_abort(
      plan_step(std::move(facts), step, std::nullopt, kTimeout, std::move(known)));
  Socket port = aborter.value_or_abort(reserve_store_socket(plan, environment));
  auto task = aborter.value_or_abort(task_environment(plan, environment, port, program_of(spank)));
  add_setter(own, environment, task.variables);
  const EnvMap complete = with_variables(environment, task.variables);
  // A barrier: no program starts before all tasks have reached this line.
  if (options->explain || options->check.value_or(0) != 0) wait_for_nodes(aborter, plan, complete);
  for (const auto& [name, value] : task.variables) {
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS)
      aborter.abort(Error{formatted("Slurm cannot set {} in the task's environment", name)});
  }
  add_agent_token(spank, secret, environment);
  if (!note_on_empty.empty() && plan.env.layout.rank == 0)
    task.notes.insert(task.notes.begin(), note_on_empty);
  for (const auto& note : task.notes) print_task_line(note.c_str());
  if (const auto local_task = local_task_of(spank)) {  // read by slurm_spank_task_exit
    const std::string error_file(complete.get("TORCHELASTIC_ERROR_FILE").value_or(""));
    const bool is_ours = environment.get("TORCHELASTIC_ERROR_FILE") != error_file;
    write_record(node.table, *local_task, {plan.env.layout.rank, error_file, is_ours});
    const bool others_wait =
        plan.env.layout.world_size > 1 && options->on_failure && !is_agent(program_of(spank));
    if (*local_task == 0 && others_wait && listener.port != 0)
      watch_stopped_tasks(node.table, listener, std::chrono::seconds(*options->on_failure));
  }
  (void)port.release();  // the program inherits the socket
}

}  // namespace torchbridge
