// The nodes of a step's ranks from the lists of Slurm's controller, for steps whose environment
// does not contain them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/step_record.h"

namespace torchbridge {

// Requests a component from the controller. Each component of a heterogeneous job has a job id of
// its own; the components of a heterogeneous step in an ordinary job have numbers instead. Returns
// a component without ranks where it does not exist or has ended, and an error where the controller
// does not answer.
using AskComponent =
    std::function<Result<StepComponent>(std::uint32_t job_id, std::optional<std::uint32_t> number)>;

struct StepShape {
  std::uint32_t job_id = 0;  // in a heterogeneous job that of this node's component
  int world_size = 1;        // tasks of the whole step
  int component_tasks = 1;   // tasks of the component that this node is part of

  bool has_components() const { return component_tasks != world_size; }
};

// The job ids of the components of a heterogeneous job; empty for an ordinary job. `own`: the job
// id of this node's tasks.
std::vector<std::uint32_t> jobs_of_components(const EnvMap& environment, std::uint32_t own);

// Whether the variables are enough to know the node of each rank. False where tasks were placed one
// by one (--distribution=arbitrary, SLURM_HOSTFILE), and in steps of several components, whose
// variables contain the distribution of one component only.
bool environment_has_placement(const EnvMap& environment, const StepShape& step);

// All components of the step. Empty where one has ended already: its ranks cannot join the process
// group.
Result<std::vector<StepComponent>> components_of_step(const EnvMap& environment,
                                                      const StepShape& step,
                                                      const AskComponent& ask);

}  // namespace torchbridge
