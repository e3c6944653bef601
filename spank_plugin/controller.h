// What Slurm's controller is asked.
#pragma once

#include <cstdint>
#include <optional>

#include "placement.h"

namespace torchbridge {

// One request, under the rights of the caller. `number` is that of a component in a heterogeneous step of an ordinary job.
// Empty where there is no such step, or no longer.
Result<Component> ask_component(std::uint32_t job_id, std::uint32_t step_id, std::optional<std::uint32_t> number);

}  // namespace torchbridge
