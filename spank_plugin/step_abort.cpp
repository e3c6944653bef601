#include "spank_plugin/step_abort.h"

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "spank_plugin/controller.h"
#include "spank_plugin/failure_listener.h"
#include "spank_plugin/log.h"
#include "spank_plugin/step_request.h"

namespace torchbridge {

constexpr std::chrono::milliseconds kSpread{2000};  // over which the nodes spread their requests

void print_task_line(const char* message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message); }

void wait_random_delay(std::chrono::milliseconds longest) {
  const auto spread = static_cast<std::uint32_t>(std::max<std::int64_t>(longest.count(), 1));
  std::uint32_t random = 0;
  [[maybe_unused]] const ssize_t size = getrandom(&random, sizeof random, GRND_NONBLOCK);
  poll(nullptr, 0, static_cast<int>(random % spread));
}

void StepAborter::abort(const char* reason) const {
  if (!table_.set_reason(reason)) print_task_line(reason);  // slurmstepd had no memory for a table
  _exit(EXIT_FAILURE);
}

void StepAborter::abort(const Error& error) const {
  if (error.reported_elsewhere) _exit(EXIT_FAILURE);
  if (!srun_listens_) wait_random_delay(kSpread);
  abort(error.message.c_str());
}

void abort_step(spank_t spank, const std::string& reason) {
  const FailureListenerAddress listener = listener_in(job_environment(spank));
  if (send_report(listener, {Report::Kind::kStepMustEnd, std::chrono::system_clock::now(), reason})) return;
  log_lines(reason);
  if (listener.port != 0) wait_random_delay(kSpread);
  kill_step(ids_of(spank));
}

}  // namespace torchbridge
