// Facts about a step that the plugin finds in srun, passed to the tasks in a variable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torchbridge {

// One component of a step; an ordinary step is one.
struct StepComponent {
  std::string nodes;              // Slurm's list, in Slurm's order
  std::vector<int> node_of_rank;  // indices in `nodes`; ranks are counted from 0 in each component

  bool operator==(const StepComponent&) const = default;
};

// The name begins with SLURM_, because `srun --export=NONE` keeps only those.
inline constexpr char kStepRecordVariable[] = "SLURM_TORCH_ENV_STEP";
// A string of the environment has at most 128 KiB in execve.
inline constexpr std::size_t kMaxStepRecord = 96 * 1024;

// `step` is JOB.STEP, `address` that of rank 0's node, or empty where its name resolves. Components
// that would make the record longer than kMaxStepRecord are left out: see is_truncated.
std::string step_record(const std::string& step, const std::vector<StepComponent>& components,
                        const std::string& address = {});

// Whether it is the record of this step, but without the components because of their size.
bool is_truncated(std::string_view record, std::string_view step);

// The address of rank 0's node; empty where the record is that of another step or version, or has
// none.
std::string address_in(std::string_view record, std::string_view step);

// The node of each of `world_size` ranks, as an index in `nodes`. Empty where the record is that of
// another step or version, or has no components.
std::vector<int> node_of_rank_in(std::string_view record, std::string_view step,
                                 const std::vector<std::string>& nodes, int world_size);

}  // namespace torchbridge
