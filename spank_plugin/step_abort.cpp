#include "spank_plugin/step_abort.h"

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "spank_plugin/controller.h"
#include "spank_plugin/failure_listener.h"
#include "spank_plugin/log.h"
#include "spank_plugin/step_request.h"

namespace torchbridge {

constexpr int kSpreadMs = 2000;  // interval over which the nodes spread their requests

void print_task_line(const char* message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message); }

void wait_random_delay(const EnvMap& environment, int least_ms) {
  const auto nodes = environment.integer("SLURM_STEP_NUM_NODES", 1, 100'000);
  const int spread = std::max(least_ms, static_cast<int>(nodes ? nodes->value_or(1) : 1));
  std::uint32_t random = 0;
  [[maybe_unused]] const ssize_t size = getrandom(&random, sizeof random, GRND_NONBLOCK);
  poll(nullptr, 0, static_cast<int>(random % spread));
}

void StepAborter::abort(const char* reason) const {
  if (table_.set_reason(reason)) _exit(EXIT_FAILURE);
  print_task_line(reason);  // slurmstepd had no memory for a table, so it cannot report the reason
  try {
    kill_step(ids_of(spank_));
  } catch (const std::exception&) {  // out of memory here too: only this task ends
  }
  _exit(EXIT_FAILURE);
}

void StepAborter::abort(const Error& error) const {
  if (error.reported_elsewhere) _exit(EXIT_FAILURE);
  if (!srun_listens_) wait_random_delay(job_environment(spank_), kSpreadMs);
  abort(error.message.c_str());
}

void abort_step(spank_t spank, const UserIds& user, const std::string& reason) {
  const EnvMap environment = job_environment(spank);
  const FailureListenerAddress listener = listener_in(environment);
  const Report report{Report::Kind::kStepMustEnd, std::chrono::system_clock::now(), reason};
  if (run_as_user(user, [&] { return send_report(listener, report); })) return;
  log_lines(reason);
  if (listener.port != 0) wait_random_delay(environment, kSpreadMs);
  run_as_user(user, [&] { return kill_step(ids_of(spank)), true; });
}

}  // namespace torchbridge
