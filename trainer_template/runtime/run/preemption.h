// Whether this process has been asked to stop: by a signal, or because the time of its job is nearly over.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>

namespace torchbridge::train {

struct PreemptionOptions {
  // Stop by oneself so long before the job's time is over; nothing: only signals count.
  std::optional<std::chrono::seconds> before_end;
  // When that is, in the system's clock; nothing where it is not known.
  std::optional<std::chrono::system_clock::time_point> end_of_job;
};

// SLURM_JOB_END_TIME, seconds since 1970: Slurm sets it from 23.02 on, scripts/train.sbatch before that. An error names a value that
// is no such time; nothing where it is not set.
Result<std::optional<std::chrono::system_clock::time_point>> end_of_job(const EnvMap& environment);

// While it lives SIGTERM, SIGUSR1, SIGUSR2 and SIGINT do not end the process but are taken down; a second SIGINT ends it at once, as it
// would without. One a process. Signals that were ignored when it was made stay so: a launcher's shell may have meant it.
class Preemption {
 public:
  explicit Preemption(const PreemptionOptions& options);
  ~Preemption();
  Preemption(const Preemption&) = delete;
  Preemption& operator=(const Preemption&) = delete;

  // Any thread, at any time; never goes back to false. Other ranks may know it later or not at all: agree before stopping.
  bool requested() const;
  // "SIGUSR1", "the job ends in 118 s"; empty where nothing was requested here.
  std::string reason() const;

 private:
  PreemptionOptions options_;
};

}  // namespace torchbridge::train
