// Where the ranks of a step are, when the environment of its tasks does not tell: from the lists that Slurm's controller keeps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>

namespace torchbridge {

// A node of one component of a step, with the ranks that it holds, counted from 0 in every component.
struct ComponentNode {
  std::string name;
  std::vector<int> ranks;
};
using Component = std::vector<ComponentNode>;

// Asks for a component: of a heterogeneous job each has a job id of its own; the components of a heterogeneous step in an
// ordinary job have numbers instead. Empty where there is no such component, or no longer; an error where nobody answers.
using AskComponent = std::function<Result<Component>(std::uint32_t job_id, std::optional<std::uint32_t> number)>;

struct StepShape {
  std::uint32_t job_id = 0;   // of a heterogeneous job, that of this node's component
  int world_size = 1;         // tasks of the whole step
  int component_tasks = 1;    // tasks of the component that this node is part of

  bool has_components() const { return component_tasks != world_size; }
};

// Of a heterogeneous job the jobs of its components, each of which has its own part of every step; else empty. `own`: the id that this node's task has.
std::vector<std::uint32_t> jobs_of_components(const EnvMap& environment, std::uint32_t own);

// False where tasks were placed one by one (--distribution=arbitrary, SLURM_HOSTFILE), and in steps of several components, whose
// tasks are told the distribution of one of them.
bool environment_tells_placement(const EnvMap& environment, const StepShape& step);

// The node of each rank. Empty where a component has ended already, so that its ranks will meet nobody; an error where the
// components do not make up the step.
Result<std::vector<std::string>> placement_of_step(const EnvMap& environment, const StepShape& step, const AskComponent& ask);

// The same by the numbers that the nodes have in a list; an error where one is not on it.
Result<std::vector<int>> numbers_of(const std::vector<std::string>& node_of_rank, const std::vector<std::string>& nodes);

}  // namespace torchbridge
