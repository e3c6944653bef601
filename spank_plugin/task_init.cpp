#include "spank_plugin/task_init.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bridge/core/launchers/slurm.h"
#include "bridge/core/nested_launch.h"
#include "bridge/net/address.h"
#include "bridge/step/node_check.h"
#include "bridge/step/store_port.h"
#include "bridge/step/task_environment.h"
#include "spank_plugin/controller.h"
#include "spank_plugin/step.h"
#include "spank_plugin/step_ending.h"
#include "spank_plugin/task_report.h"

namespace torchbridge {
namespace {

void unset_all_but(spank_t spank, const EnvMap& kept, const EnvMap& environment) {
  for (const auto& [name, value] : environment) {
    if (!kept.has(name)) spank_unsetenv(spank, name.c_str());
  }
}

// The environment as the user gave it.
EnvMap without_ours(spank_t spank, const EnvMap& given) {
  EnvMap rest;
  for (const auto& [name, value] : given) {
    if (!is_ours(name, value)) rest.set(name, value);
  }
  unset_all_but(spank, rest, given);
  return rest;
}

// Another copy of this plugin has been here: the environment is made.
bool is_made(const EnvMap& environment, const LaunchFacts& facts) {
  if (!is_set_for(environment, facts)) return false;
  if (facts.local_rank != 0) return true;
  tell_task(("plugstack.conf on " + host_name() + " loads the plugin twice: remove one of the lines").c_str());
  return true;
}

// Completes the facts where the variables do not tell on which node each rank is. One task of the node asks Slurm's
// controller where srun's answer does not reach: the other components of a heterogeneous step, `srun --async`.
Status add_placement(spank_t spank, const SharedTaskTable& table, EnvMap& environment, LaunchFacts& facts) {
  const std::string step = facts.job_id + "." + facts.step_id;
  Result<std::string> record = std::string(environment.get(kStepRecordVariable).value_or(""));
  if (!facts.node_of_rank.empty()) return Ok{};
  const auto ask = [&] {
    wait_among_nodes(environment);
    return record_of_step(spank, environment, facts.world_size, {}, false);
  };
  if (!is_truncated(*record, step)) record = table.ask_once(SharedTaskTable::kRecord, ask);
  if (!record) return record.error();
  if (is_truncated(*record, step)) {
    return Error{"the nodes of " + std::to_string(facts.world_size) +
                 " ranks that were placed one by one do not fit into a variable of " +
                 std::to_string(kMaxStepRecord / 1024) + " KiB: give ranks=block"};
  }
  if (record->empty()) return Ok{};  // and what srun wrote of an address stays
  facts.node_of_rank = node_of_rank_in(*record, step, facts.nodes, facts.world_size);
  if (facts.node_of_rank.empty()) {
    return Error{"slurm: the controller's lists of nodes and ranks do not fit together: give ranks=block"};
  }
  environment.set(kStepRecordVariable, *record);  // for the program
  spank_setenv(spank, kStepRecordVariable, record->c_str(), 1);
  return Ok{};
}

// Of rank 0's node, which one task of this node looks up for all: the NodeAddr where the name does not resolve here.
// Empty where that is not known either.
std::string address_of_first(const SharedTaskTable& table, const EnvMap& environment, const LaunchFacts& facts,
                             RankRule ranks) {
  const auto ask = [&]() -> Result<std::string> {
    const auto map = task_map_of(facts);
    const auto node = map ? master_node_of(facts, *map, ranks) : map.error();
    if (!node) return node.error();
    auto address = address_of_node(facts.nodes[*node]);
    if (address) return address;
    wait_among_nodes(environment);
    return node_addr_of(facts.nodes[*node]);
  };
  const auto address = table.ask_once(SharedTaskTable::kAddress, ask);
  return address ? *address : std::string();
}

void wait_for_nodes(const StepEnding& end, const StepPlan& plan, const std::string& token, const EnvMap& complete) {
  const NodeCheck check{.token = token, .hint = " (or is torch_env.so missing in its plugstack.conf?)"};
  const std::string table = end.value_of(check_nodes(plan, complete, check));
  if (!plan.options.explain) return;
  dprintf(STDOUT_FILENO, "%s", table.c_str());
  _exit(EXIT_SUCCESS);
}

}  // namespace

void export_torch_env(spank_t spank, const NodeState& node) {
  const EnvMap given = job_environment(spank);
  const EnvMap inherited = without_ours(spank, given);
  if (!is_rank_step(spank)) return;
  const FailureListenerAddress reporter = reporter_in(given);
  const StepEnding end(spank, node.table, reporter.port != 0);
  const auto options = end.value_of(asked_options(node.lists, given));
  if (!options) return;
  prctl(PR_SET_NAME, "torch_env");                   // proctrack/linuxproc never ends what is called slurmstepd
  setenv("RES_OPTIONS", "timeout:2 attempts:2", 1);  // for a silent name server; the program's environment is another

  LaunchFacts facts = end.value_of(read_slurm(inherited));
  if (is_made(inherited, facts)) return;
  // A step inside another step inherits its variables, which are not the user's.
  EnvMap environment = without_outer_run(inherited, facts);
  unset_all_but(spank, environment, inherited);
  if (options->ranks != RankRule::kBlock) end.value_of(add_placement(spank, node.table, environment, facts));
  constexpr std::chrono::seconds kTimeout{60};  // nodes of a large step start one after the other
  const StepOptions step = end.value_of(step_options(environment, *options));
  if (step.options.addr.is_by_node_name() && facts.first_address.empty()) {
    facts.first_address = address_of_first(node.table, environment, facts, options->ranks);
  }
  const StepPlan plan = end.value_of(plan_step(std::move(facts), step, std::nullopt, kTimeout));
  Socket port = end.value_of(reserve_store_socket(plan, environment));
  const auto task = end.value_of(task_environment(plan, environment, port, program_of(spank)));
  const EnvMap complete = with_variables(environment, task.variables);
  // No program starts before all tasks have come so far.
  if (options->explain || options->check.value_or(0) != 0) wait_for_nodes(end, plan, reporter.token, complete);
  for (const auto& [name, value] : task.variables) {
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS) end.by({"Slurm refused to set " + name});
  }
  for (const auto& note : task.notes) tell_task(note.c_str());
  if (TaskRecord* const record = record_of_task(spank, node.table)) {  // for task_exit
    const std::string error_file(complete.get("TORCHELASTIC_ERROR_FILE").value_or(""));
    write_record(node.table, *record, plan.env.layout.rank, error_file);
  }
  (void)port.release();  // the program's from here on
}

}  // namespace torchbridge
