#include "placement.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace torchbridge {
namespace {

constexpr std::uint32_t kMostComponents = 128;  // MAX_HET_JOB_COMPS of Slurm

// The ranks of all components, one behind the other: srun numbers ranks and nodes through.
class Placement {
 public:
  explicit Placement(int world_size) : node_of_rank_(world_size) {}

  bool complete() const { return ranks_ == static_cast<int>(node_of_rank_.size()); }

  // False where the component does not fit into the step or has no list of its own ranks.
  bool add(const Component& component) {
    int size = 0;
    for (const auto& node : component) size += static_cast<int>(node.ranks.size());
    if (ranks_ + size > static_cast<int>(node_of_rank_.size())) return false;
    for (const auto& node : component) {
      if (node.ranks.empty() || node.name.empty()) return false;
      for (const int rank : node.ranks) {
        if (rank < 0 || rank >= size || !node_of_rank_[ranks_ + rank].empty()) return false;
        node_of_rank_[ranks_ + rank] = node.name;
      }
    }
    ranks_ += size;
    return true;
  }

  std::vector<std::string> node_of_rank() && { return std::move(node_of_rank_); }

 private:
  std::vector<std::string> node_of_rank_;
  int ranks_ = 0;  // placed so far
};

Error unanswered(const std::string& why) {
  return {"slurm: where each rank is had to be asked of the controller: " + why + ": give ranks=block, which does not need it"};
}

}  // namespace

// srun writes PACK_GROUP for a job that it has made itself, salloc and sbatch HET_GROUP. An ordinary job may have inherited the variables of another.
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

bool environment_tells_placement(const EnvMap& environment, const StepShape& step) {
  if (step.has_components()) return false;
  return !environment.get("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary");
}

Result<std::vector<std::string>> placement_of_step(const EnvMap& environment, const StepShape& step, const AskComponent& ask) {
  const auto jobs = jobs_of_components(environment, step.job_id);
  std::vector<std::pair<std::uint32_t, std::optional<std::uint32_t>>> components;
  if (!jobs.empty()) {
    for (const auto job : jobs) components.emplace_back(job, std::nullopt);
  } else if (step.has_components()) {
    for (std::uint32_t number = 0; number < kMostComponents; ++number) components.emplace_back(step.job_id, number);
  } else {
    components.emplace_back(step.job_id, std::nullopt);
  }
  Placement placement(step.world_size);
  for (const auto& [job, number] : components) {
    const auto component = ask(job, number);
    if (!component) return unanswered(component.error().message);
    if (!placement.add(*component)) return unanswered("its lists do not make up the " + std::to_string(step.world_size) + " tasks of this step");
    const bool last = placement.complete() || (number && component->empty());  // a step may leave out jobs (--het-group)
    if (last) break;
  }
  return placement.complete() ? std::move(placement).node_of_rank() : std::vector<std::string>();
}

Result<std::vector<int>> numbers_of(const std::vector<std::string>& node_of_rank, const std::vector<std::string>& nodes) {
  std::map<std::string_view, int> numbers;
  for (const auto& node : nodes) numbers.emplace(node, static_cast<int>(numbers.size()));
  std::vector<int> found;
  for (const auto& node : node_of_rank) {
    const auto number = numbers.find(node);
    if (number == numbers.end()) return unanswered("it names the node " + node + ", which SLURM_STEP_NODELIST does not");
    found.push_back(number->second);
  }
  return found;
}

}  // namespace torchbridge
