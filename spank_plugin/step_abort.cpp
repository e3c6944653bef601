#include "spank_plugin/step_abort.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bridge/base/random_number.h"
#include "spank_plugin/controller.h"
#include "spank_plugin/failure_listener.h"
#include "spank_plugin/log.h"
#include "spank_plugin/step_request.h"

namespace torchbridge {

constexpr std::chrono::milliseconds kSpread{2000};  // over which the nodes spread their requests

void print_task_line(const char* message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message); }

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
  if (send_report(listener,
                  {StepReport::Kind::kStepMustEnd, std::chrono::system_clock::now(), reason}))
    return;
  log_lines(reason);
  if (listener.port != 0) wait_random_delay(kSpread);
  kill_step(ids_of(spank));
}

}  // namespace torchbridge
