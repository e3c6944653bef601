#include "step_ending.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "as_user.h"
#include "controller.h"
#include "placement.h"
#include "task_init.h"

namespace torchbridge {
namespace {

// Before any failure of a program: those are consequences, whatever the nodes' clocks say.
constexpr std::chrono::system_clock::time_point kBeforePrograms{};

// A busy node takes a while to report, and Slurm to end the step.
constexpr int kTurnMs = 3000;

void wait_ms(int time) { poll(nullptr, 0, time); }

void ask_to_end_step(spank_t spank) {
  uint32_t job = 0, step = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS) return;
  auto jobs = jobs_of_components(job_environment(spank), job);
  if (jobs.empty()) jobs.push_back(job);
  for (const auto each : jobs) kill_step(each, step);
}

}  // namespace

void tell_task(const std::string& message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message.c_str()); }

// proctrack/linuxproc spares whatever is called slurmstepd, also when the step is to end.
void let_slurm_end_us() { prctl(PR_SET_NAME, "torch_env"); }

bool mark_refused(spank_t spank, const TaskBoard& board) {
  int local_task = 0;
  if (spank_get_item(spank, S_TASK_ID, &local_task) != ESPANK_SUCCESS) return false;
  TaskRecord* record = board.record_of(local_task);
  if (record != nullptr) record->refused = true;
  return record != nullptr;
}

void end_step_of(spank_t spank) {
  uid_t user = 0;
  gid_t group = 0;
  if (spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_GID, &group) != ESPANK_SUCCESS) return;
  run_as_user(user, group, [spank] { return ask_to_end_step(spank), std::string(); });
}

StepEnding::StepEnding(spank_t spank, const TaskBoard& board, const EnvMap& given)
    : spank_(spank), board_(board), desk_(DeskAddress::from(given)), is_on_first_node_(given.get("SLURM_NODEID").value_or("0") == "0") {}

void StepEnding::by_this_task(const Error& error) const {
  if (error.reported_elsewhere || !board_.may_speak()) {
    wait_ms(kTurnMs);  // until the step is ended: not before the reason is out
    end_task();
  }
  report(error.message);
  end_task();
}

void StepEnding::by_each_node(const Error& error) const {
  let_slurm_end_us();
  if (!is_on_first_node_) wait_ms(kTurnMs);
  by_this_task(error);
}

// srun prints what it was told after all tasks have ended. What a task writes to its stderr it drops if the step ends too soon.
void StepEnding::report(const std::string& message) const {
  constexpr int kForwardingMs = 500;
  if (desk_ && tell_desk(*desk_, kBeforePrograms, message)) return;
  tell_task(message);
  wait_ms(kForwardingMs);
}

void StepEnding::end_task() const {
  if (!mark_refused(spank_, board_)) ask_to_end_step(spank_);
  _exit(EXIT_FAILURE);
}

}  // namespace torchbridge
