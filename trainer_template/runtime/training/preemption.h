// Whether this process has been asked to stop: by a signal, or because the time of its job is nearly over.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {

struct PreemptionOptions {
  // Stop by oneself so long before the job's time is over; nothing: only signals count.
  std::optional<std::chrono::seconds> before_end;
  // When that is, in the system's clock; nothing where it is not known.
  std::optional<std::chrono::system_clock::time_point> end_of_job;
  // From a signal to the end by force; nothing where it is not known.
  std::optional<std::chrono::seconds> grace;
  bool saves = false;  // a stop leaves a checkpoint to go on from
  bool speaks = true;  // for the job, while the ranks do not know each other
};

// SLURM_JOB_END_TIME, seconds since 1970: Slurm sets it from 23.02 on, scripts/train.sbatch before that. An error names
// a value that is no such time; nothing where it is not set.
Result<std::optional<std::chrono::system_clock::time_point>> end_of_job(const EnvMap& environment);

// While it lives SIGTERM, SIGUSR1, SIGUSR2 and SIGINT are taken down instead of ending the process; a second SIGINT
// ends it at once, as it would without. One a process. Signals that were ignored when it was made stay so: a launcher's
// shell may have meant it.
//
// Before begin_work() there is nothing to save, and nobody who asks: a signal ends the process at once, with a line.
// After it, a process that is still there when the grace is over, or the job's time, ends itself with a line. Both with
// exit_code().
class Preemption {
 public:
  explicit Preemption(const PreemptionOptions& options);
  ~Preemption();
  Preemption(const Preemption&) = delete;
  Preemption& operator=(const Preemption&) = delete;

  // From here on a closed pipe, and a file that becomes larger than the system's limit, end no process either: writing
  // fails.
  void begin_work();

  // All is done and saved: from now on, and when this is gone, these signals are ignored, for the process ends by
  // itself.
  void complete();

  // Any thread, at any time; never goes back to false. Other ranks may know it later or not at all: agree before
  // stopping.
  bool requested() const;
  // "SIGUSR1", "the job ends in 118 s"; empty where nothing was requested here.
  std::string reason() const;
  // The first signal; 0 where there was none.
  int signal() const;

 private:
  PreemptionOptions options_;
  bool complete_ = false;
};

// kRequeue where a stop leaves a checkpoint; else that of a program which the signal ended.
ExitCode code_of_stop(bool saves, int signal);

}  // namespace torchbridge::train
