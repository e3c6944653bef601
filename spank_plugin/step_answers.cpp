#include "spank_plugin/step_answers.h"

#include <unistd.h>

#include <cstdlib>

#include "bridge/base/message_text.h"
#include "bridge/base/random_number.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/nested_launch.h"
#include "bridge/net/address.h"
#include "bridge/step/step_plan.h"
#include "spank_plugin/as_user.h"
#include "spank_plugin/controller.h"
#include "spank_plugin/step.h"
#include "spank_plugin/step_abort.h"

namespace torchbridge {
namespace {

constexpr std::chrono::seconds kLimit{9};

// A large step's nodes do not all ask at the same moment.
void wait_before_request(spank_t spank) {
  wait_random_delay(request_spread(item<std::uint32_t>(spank, S_JOB_NNODES).value_or(1)));
}

// The node of each rank where the variables do not contain it. srun's record does not reach the
// other components of a heterogeneous step, nor the tasks of `srun --async`.
void ask_for_placement(spank_t spank, const SharedTaskTable& table, EnvMap& environment,
                       LaunchFacts& facts) {
  const std::string step = facts.job_id + "." + facts.step_id;
  const auto given = environment.get(kStepRecordVariable).value_or("");
  if (!facts.node_of_rank.empty() || is_truncated(given, step)) return;
  wait_before_request(spank);
  const auto record = record_of_step(spank, environment, facts.world_size, {}, false);
  table.set_answer(SharedTaskTable::kRecord, record);
  if (record) facts.node_of_rank = node_of_rank_in(*record, step, facts.nodes, facts.world_size);
}

// The answer that the tasks find where this process is ended because a look-up takes too long.
std::string unanswered_names(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    text += formatted(
        "{} !host name '{}' does not resolve on {}: the resolver gave no answer within {} s\n",
        name, printable(name), host_name(), kLimit.count());
  }
  return text;
}

void ask(spank_t spank, const NodeState& state) {
  const EnvMap given = without_plugin_variables(job_environment(spank));
  const auto options = requested_options(state.lists, job_environment(spank));
  if (!is_rank_step(spank) || !options || !*options) return;
  auto facts = read_slurm_step(given);
  if (!facts) return;
  EnvMap environment = without_outer_run(given, *facts);
  if ((*options)->ranks != RankRule::kBlock)
    ask_for_placement(spank, state.table, environment, *facts);
  const auto step = step_options(environment, **options);
  if (!step) return;
  // Slurmstepd's own variable, not the user's.
  const char* const own_node = getenv("SLURMD_NODENAME");
  const auto names = names_of_step(*facts, *step, own_node != nullptr ? own_node : "");
  if (names.empty()) return;
  state.table.set_answer(SharedTaskTable::kNames, unanswered_names(names));
  setenv("RES_OPTIONS", "timeout:2 attempts:2", 1);  // for a name server that does not answer
  const auto ask_controller = [&](const std::string& name) {
    return wait_before_request(spank), node_addr_of(name);
  };
  const HostNames found =
      look_up_names_of_step(*facts, *step, own_node != nullptr ? own_node : "", ask_controller);
  state.table.set_answer(SharedTaskTable::kNames, found.text());
}

}  // namespace

void ask_for_tasks(spank_t spank, const NodeState& state) {
  const auto user = user_of(spank);
  if (state.table.is_empty() || local_task_of(spank) != 0 || !user) return;
  run_as_user(*user, kLimit, [&] { return ask(spank, state), true; });
}

}  // namespace torchbridge
