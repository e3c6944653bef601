// How a task ends the step when its program cannot have a complete environment.
//
// An error returned to Slurm from an `optional` plugin would start the program without it, so the task ends itself; and
// one rank without its environment would leave the others waiting, so the step ends: srun, which is told why, asks
// Slurm for it. Where srun is not reached slurmstepd does when the task is gone, for a task may be in a container from
// which Slurm's controller cannot be reached.
#pragma once

#include <string>

#include <torchbridge/core/result.h>

#include "reporter.h"
#include "spank.h"
#include "task_board.h"

namespace torchbridge {

// A line on the task's own stderr.
void tell_task(const std::string& message);

// From here on Slurm can end this process.
void let_slurm_end_us();

// Waits a random time, so that not all nodes of the step ask Slurm in the same instant: up to `ms_a_node` for each
// node, or `least_ms`.
void wait_among_nodes(spank_t spank, int ms_a_node, int least_ms = 1);

// In srun, slurmstepd's child or a task: asks Slurm to kill all tasks of the step. One request.
void kill_step_of(spank_t spank);

class StepEnding {
 public:
  StepEnding(spank_t spank, const TaskBoard& board, ReporterAddress reporter)
      : spank_(spank), board_(board), reporter_(std::move(reporter)) {}

  // Ends this process. The first task of this node reports the error; where it is reported_elsewhere none does.
  [[noreturn]] void by(const Error& error) const;
  [[noreturn]] void without_a_line() const noexcept;

 private:
  void report(const std::string& message) const;
  void leave_it_to_slurmstepd() const;

  spank_t spank_;
  const TaskBoard& board_;
  ReporterAddress reporter_;
};

}  // namespace torchbridge
