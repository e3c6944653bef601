// How the step ends where a task's program cannot have a complete environment.
//
// An error returned to Slurm from an `optional` plugin would start the program without it, so the task ends itself; and
// one rank without its environment would leave the others waiting, so the step ends. A task may be in a container from
// which neither srun nor Slurm's controller is reached: slurmstepd reports its reason to srun, which asks Slurm to end
// the step. Where srun is not reached slurmstepd asks.
#pragma once

#include <utility>

#include "bridge/base/result.h"
#include "spank_plugin/as_user.h"
#include "spank_plugin/shared_task_table.h"
#include "spank_plugin/spank.h"
#include "spank_plugin/step.h"

namespace torchbridge {

// A line on the task's own stderr.
void tell_task(const char* message);

// Waits a random time, so that not all nodes of the step ask Slurm in the same instant: up to `least_ms`, or a
// millisecond for each node.
void wait_among_nodes(const EnvMap& environment, int least_ms = 1);

// In a task.
class StepEnding {
 public:
  StepEnding(spank_t spank, const SharedTaskTable& table, bool srun_listens)
      : spank_(spank), table_(table), srun_listens_(srun_listens) {}

  // Ends this process. The first reason on this node is the one that slurmstepd reports.
  [[noreturn]] void because(const char* reason) const;
  // Where the error is reported_elsewhere slurmstepd has nothing to report. Where srun does not listen, so that
  // slurmstepd will ask Slurm, it waits before: the first node's request ends the tasks of the others meanwhile.
  [[noreturn]] void by(const Error& error) const;

  // The value, or the end.
  template <class T>
  T value_of(Result<T> result) const {
    if (!result) by(result.error());
    return std::move(*result);
  }

 private:
  spank_t spank_;
  const SharedTaskTable& table_;
  bool srun_listens_;
};

// In slurmstepd, when a task has ended and left a reason on the table.
void end_step(spank_t spank, const UserIds& user, const std::string& reason);

}  // namespace torchbridge
