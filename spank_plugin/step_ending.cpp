#include "spank_plugin/step_ending.h"

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
#include "spank_plugin/stamp.h"

namespace torchbridge {

constexpr int kSpreadMs = 2000;  // of the nodes' requests

void tell_task(const char* message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message); }

void wait_among_nodes(const EnvMap& environment, int least_ms) {
  const auto nodes = environment.integer("SLURM_STEP_NUM_NODES", 1, 100'000);
  const int spread = std::max(least_ms, static_cast<int>(nodes ? nodes->value_or(1) : 1));
  std::uint32_t random = 0;
  [[maybe_unused]] const ssize_t size = getrandom(&random, sizeof random, GRND_NONBLOCK);
  poll(nullptr, 0, static_cast<int>(random % spread));
}

void StepEnding::because(const char* reason) const {
  if (table_.set_reason(reason)) _exit(EXIT_FAILURE);
  tell_task(reason);  // there was no memory for a table
  try {
    kill_step(ids_of(spank_));
  } catch (const std::exception&) {  // nor is there any now: nothing is left to do
  }
  _exit(EXIT_FAILURE);
}

void StepEnding::by(const Error& error) const {
  if (error.reported_elsewhere) _exit(EXIT_FAILURE);
  if (!srun_listens_) wait_among_nodes(job_environment(spank_), kSpreadMs);
  because(error.message.c_str());
}

void end_step(spank_t spank, const UserIds& user, const std::string& reason) {
  const EnvMap environment = job_environment(spank);
  const FailureListenerAddress reporter = reporter_in(environment);
  const Report report{Report::Kind::kStepMustEnd, std::chrono::system_clock::now(), reason};
  if (run_as_user(user, [&] { return send_report(reporter, report); })) return;
  tell_log(reason);
  if (reporter.port != 0) wait_among_nodes(environment, kSpreadMs);
  run_as_user(user, [&] { return kill_step(ids_of(spank)), true; });
}

}  // namespace torchbridge
