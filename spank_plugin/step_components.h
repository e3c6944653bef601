// Where the ranks of a step are, when the environment of its tasks does not tell: from the lists that Slurm's
// controller keeps.
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

// Asks for a component: of a heterogeneous job each has a job id of its own; the components of a heterogeneous step in
// an ordinary job have numbers instead. Without ranks where there is no such component, or no longer; an error where
// nobody answers.
using AskComponent = std::function<Result<StepComponent>(std::uint32_t job_id, std::optional<std::uint32_t> number)>;

struct StepShape {
  std::uint32_t job_id = 0;  // of a heterogeneous job, that of this node's component
  int world_size = 1;        // tasks of the whole step
  int component_tasks = 1;   // tasks of the component that this node is part of

  bool has_components() const { return component_tasks != world_size; }
};

// Of a heterogeneous job the jobs of its components, each of which has its own part of every step; else empty. `own`:
// the id that this node's task has.
std::vector<std::uint32_t> jobs_of_components(const EnvMap& environment, std::uint32_t own);

// False where tasks were placed one by one (--distribution=arbitrary, SLURM_HOSTFILE), and in steps of several
// components, whose tasks are told the distribution of one of them.
bool environment_tells_placement(const EnvMap& environment, const StepShape& step);

// All components of the step. Empty where one has ended already, so that its ranks will meet nobody.
Result<std::vector<StepComponent>> components_of_step(const EnvMap& environment, const StepShape& step,
                                                      const AskComponent& ask);

}  // namespace torchbridge
