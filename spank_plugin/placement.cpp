#include "placement.h"

#include <algorithm>
#include <string>

namespace torchbridge {
namespace {

// The ranks of all components, one behind the other: srun numbers ranks and nodes through.
class Placement {
 public:
  explicit Placement(int world_size) : node_of_rank_(world_size, -1) {}

  bool complete() const { return ranks_ == static_cast<int>(node_of_rank_.size()); }

  // False where the component does not fit into the step or has no list of its own ranks.
  bool add(const ComponentRanks& component) {
    int size = 0;
    for (const auto& ranks : component) size += static_cast<int>(ranks.size());
    if (size == 0 || ranks_ + size > static_cast<int>(node_of_rank_.size())) return false;
    for (const auto& ranks : component) {
      if (ranks.empty()) return false;
      for (const int rank : ranks) {
        if (rank < 0 || rank >= size || node_of_rank_[ranks_ + rank] >= 0) return false;
        node_of_rank_[ranks_ + rank] = nodes_;
      }
      ++nodes_;
    }
    ranks_ += size;
    return true;
  }

  std::vector<int> node_of_rank() && { return std::move(node_of_rank_); }

 private:
  std::vector<int> node_of_rank_;
  int ranks_ = 0, nodes_ = 0;  // placed so far
};

// srun writes PACK_GROUP for a job that it has made itself, salloc and sbatch HET_GROUP. Empty in an ordinary job, also where it
// inherited the variables of another.
std::vector<std::uint32_t> jobs_of_components(const EnvMap& environment, std::uint32_t own) {
  std::vector<std::uint32_t> jobs;
  while (true) {
    const std::string number = std::to_string(jobs.size());
    auto job = environment.get("SLURM_JOB_ID_PACK_GROUP_" + number);
    if (!job) job = environment.get("SLURM_JOB_ID_HET_GROUP_" + number);
    const auto id = job ? parse_integer(*job, 1, UINT32_MAX) : std::nullopt;
    if (!id) break;
    jobs.push_back(static_cast<std::uint32_t>(*id));
  }
  if (std::find(jobs.begin(), jobs.end(), own) == jobs.end()) jobs.clear();
  return jobs;
}

}  // namespace

bool environment_tells_placement(const EnvMap& environment, const StepShape& step) {
  if (step.has_components()) return false;
  return !environment.get("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary");
}

Result<std::vector<int>> placement_of_step(const EnvMap& environment, const StepShape& step, const AskComponent& ask) {
  const auto jobs = jobs_of_components(environment, step.job_id);
  Placement placement(step.world_size);
  bool fits = true;
  const auto add = [&](std::uint32_t job, std::optional<std::uint32_t> number) {
    const auto component = ask(job, number);
    if (component) fits = fits && placement.add(*component);
    return component.has_value();
  };
  if (!jobs.empty()) {
    for (const auto job : jobs) add(job, std::nullopt);  // a step may leave components out (--het-group)
  } else if (step.has_components()) {
    for (std::uint32_t number = 0; !placement.complete() && add(step.job_id, number);) ++number;
  } else {
    add(step.job_id, std::nullopt);
  }
  if (fits && placement.complete()) return std::move(placement).node_of_rank();
  return Error{"slurm: the node of each rank was asked of the controller, and its answer does not cover the " +
               std::to_string(step.world_size) + " tasks of this step: give ranks=block, which does not need it"};
}

}  // namespace torchbridge
