// Ends the step where the environment of a task cannot be completed.
//
// Slurm ignores an error of an `optional` plugin and would start the program without the
// environment, so the task ends itself. The other ranks would wait for the missing one, so the step
// ends too. The task may run in a container that reaches neither srun nor Slurm's controller, and
// whose libraries must not be loaded: slurmstepd, outside, reports the reason to srun, which asks
// the controller to end the step. Where srun cannot be reached slurmstepd asks the controller
// itself.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "bridge/base/result.h"
#include "spank_plugin/shared_task_table.h"
#include "spank_plugin/spank.h"
#include "spank_plugin/step.h"

namespace torchbridge {

// Prints a line on the task's own stderr.
void print_task_line(const char* message);

// Used in a task, before its program starts.
class StepAborter {
 public:
  StepAborter(const SharedTaskTable& table, bool srun_listens)
      : table_(table), srun_listens_(srun_listens) {}

  // Ends this process. slurmstepd reports the first reason of its node.
  [[noreturn]] void abort(const char* reason) const;
  // The same with the error's message, or without a reason where the error is reported_elsewhere.
  // Where srun does not listen, so that slurmstepd will send a request to the controller, it first
  // waits a random time: meanwhile the request of the first node ends the tasks of the others.
  [[noreturn]] void abort(const Error& error) const;

  // The value of the result, or the end of this process.
  template <class T>
  T value_or_abort(Result<T> result) const {
    if (!result) abort(result.error());
    return std::move(*result);
  }

 private:
  const SharedTaskTable& table_;
  bool srun_listens_;
};

// In a child of slurmstepd with the user's rights, when a task of this node has set a reason. Takes
// less than kAbortLimit.
inline constexpr std::chrono::seconds kAbortLimit{9};
void abort_step(spank_t spank, const std::string& reason);

}  // namespace torchbridge
