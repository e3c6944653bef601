// How a task ends the step when its program cannot have a complete environment.
//
// An error returned to Slurm from an `optional` plugin would start the program without it, so the task ends itself; and one rank
// without its environment would leave the others waiting, so the step ends: slurmstepd asks for it when the task is gone
// (end_step_of), for a task may be in a container from which Slurm's controller cannot be reached.
#pragma once

#include <optional>
#include <string>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>

#include "failure_desk.h"
#include "spank.h"
#include "task_board.h"

namespace torchbridge {

// A line on the task's own stderr.
void tell_task(const std::string& message);

// From here on Slurm can end this process.
void let_slurm_end_us();

// Marks this task as one that started no program. False where that cannot be noted down.
bool mark_refused(spank_t spank, const TaskBoard& board);

// In slurmstepd, after such a task: asks Slurm to kill all tasks of the step, with the user's rights.
void end_step_of(spank_t spank);

class StepEnding {
 public:
  // `given`: the task's environment, with what srun's plugin announced.
  StepEnding(spank_t spank, const TaskBoard& board, const EnvMap& given);

  // Only this task, or those of this node, may have found the error: the first of them reports it. Where it is reported_elsewhere
  // another node does.
  [[noreturn]] void by_this_task(const Error& error) const;

  // All nodes find it alike, or this one alone: the first that does reports it.
  [[noreturn]] void by_each_node(const Error& error) const;

 private:
  void report(const std::string& message) const;
  [[noreturn]] void end_task() const;

  spank_t spank_;
  const TaskBoard& board_;
  std::optional<DeskAddress> desk_;
  bool is_on_first_node_;
};

}  // namespace torchbridge
