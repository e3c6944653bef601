#include "step_ending.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "controller.h"
#include "step.h"

namespace torchbridge {
namespace {

constexpr int kMsANode = 10, kSpreadMs = 2000;  // over which the nodes' requests for the end are spread

}  // namespace

void wait_among_nodes(spank_t spank, int ms_a_node, int least_ms) {
  const auto nodes = job_environment(spank).integer("SLURM_STEP_NUM_NODES", 1, 100'000);
  const int spread = std::max(least_ms, ms_a_node * static_cast<int>(nodes ? nodes->value_or(1) : 1));
  std::uint32_t random = 0;
  [[maybe_unused]] const ssize_t size = getrandom(&random, sizeof random, GRND_NONBLOCK);
  poll(nullptr, 0, static_cast<int>(random % spread));
}

void tell_task(const std::string& message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message.c_str()); }

// proctrack/linuxproc spares whatever is called slurmstepd, also when the step is to end.
void let_slurm_end_us() { prctl(PR_SET_NAME, "torch_env"); }

void kill_step_of(spank_t spank) {
  if (const auto ids = ids_of(spank)) kill_step(*ids);
}

void StepEnding::by(const Error& error) const {
  constexpr std::chrono::seconds kReportLimit{5};  // as long as who reports needs where srun is not reached
  let_slurm_end_us();
  if (!error.reported_elsewhere && board_.may_report()) {
    report(error.message);
    board_.set_reported();
  } else if (!board_.wait_until_reported(kReportLimit)) {
    wait_among_nodes(spank_, kMsANode, kSpreadMs);
    leave_it_to_slurmstepd();
  }
  _exit(EXIT_FAILURE);
}

void StepEnding::without_a_line() const noexcept {
  try {
    leave_it_to_slurmstepd();
  } catch (const std::exception&) {  // neither memory of its own nor shared: nothing is left to do
  }
  _exit(EXIT_FAILURE);
}

void StepEnding::report(const std::string& message) const {
  constexpr int kForwardingMs = 500;  // what a task writes to its stderr srun drops if the step ends too soon
  if (send_report(reporter_, {Report::Kind::kStepMustEnd, std::chrono::system_clock::now(), message})) return;
  tell_task(message);
  poll(nullptr, 0, kForwardingMs);
  wait_among_nodes(spank_, kMsANode, kSpreadMs);
  leave_it_to_slurmstepd();
}

void StepEnding::leave_it_to_slurmstepd() const {
  TaskRecord* record = record_of_task(spank_, board_);
  if (record == nullptr) return kill_step_of(spank_);
  record->refused = true;
}

}  // namespace torchbridge
