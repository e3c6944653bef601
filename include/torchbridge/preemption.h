// Requests to stop: by a signal, or because the job's time limit is near.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge::train {

struct PreemptionOptions {
  // Stop so long before the end of the job, without a signal; nothing: only signals request a stop.
  std::optional<std::chrono::seconds> before_end;
  // The end of the job by the system's clock; nothing if it is not known.
  std::optional<std::chrono::system_clock::time_point> end_of_job;
  // The time from a signal to SIGKILL; nothing if it is not known.
  std::optional<std::chrono::seconds> grace;
  bool saves = false;       // a stop leaves a checkpoint to resume from
  bool is_reporter = true;  // this rank prints messages for the job before the process group exists
};

// The time in SLURM_JOB_END_TIME, seconds since 1970, which Slurm sets from 23.02 on, and
// trainer_template/train.sbatch for older releases. Nothing if the variable is not set; an error
// for an invalid value, which it names.
Result<std::optional<std::chrono::system_clock::time_point>> end_of_job(const EnvMap& environment);

// While it lives, SIGTERM, SIGUSR1, SIGUSR2, SIGINT and SIGHUP are recorded instead of ending the
// process; a SIGINT a second after the first, or later, ends the process at once, as without it. At
// most one in a process. Signals that were ignored when it was made stay ignored: a launcher's
// shell may have set that on purpose.
//
// Before begin_work() there is nothing to save and no code that reads requested(). The process has
// three seconds from a signal to begin_work(), so that a rank whose peers are there tells them;
// else it ends itself, with a line. After begin_work(), a process that still runs when the grace
// time or the job's time is over ends itself, with a line. The exit code of both is code_of_stop().
class Preemption {
 public:
  explicit Preemption(const PreemptionOptions& options);
  ~Preemption();
  Preemption(const Preemption&) = delete;
  Preemption& operator=(const Preemption&) = delete;

  // From here on SIGPIPE and SIGXFSZ do not end the process either: writing to a closed pipe, or
  // beyond the file size limit, fails instead.
  void begin_work();

  // Call it when all is done and saved: from now on these signals are ignored, also after the
  // destructor, because the process is about to end.
  void complete();

  // Call it when the run has stopped before its end: a signal that reaches this rank after it has
  // stopped with the others does not change its exit code, also after the destructor. The grace
  // time and another SIGINT still end the process.
  void stopped();

  // Any thread, at any time. Once true, it stays true. Other ranks may get the request later or
  // never: agree with them before stopping (StopAgreement).
  bool requested() const;
  // "SIGUSR1", "the job ends in 118 s"; empty if this process got no request.
  std::string reason() const;
  // The first signal; 0 if there was none.
  int signal() const;

 private:
  PreemptionOptions options_;
  bool restores_handlers_ = true;
};

// kRequeue if a stop leaves a checkpoint, else the exit code of a program that the signal ended.
ExitCode code_of_stop(bool saves, int signal);

}  // namespace torchbridge::train
