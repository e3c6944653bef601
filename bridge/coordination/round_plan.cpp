#include "bridge/coordination/round_plan.h"

#include <algorithm>
#include <climits>
#include <map>

namespace torchbridge {
namespace {

// The candidates by position. An open position of the round before is null until it is filled or
// closed.
std::vector<const Candidate*> positions_of(const std::vector<Candidate>& candidates, int active) {
  std::vector<const Candidate*> positions, added;
  for (const Candidate& candidate : candidates) {
    if (candidate.previous_slot < 0) {
      added.push_back(&candidate);
      continue;
    }
    const auto slot = static_cast<std::size_t>(candidate.previous_slot);
    positions.resize(std::max(positions.size(), slot + 1));
    positions[slot] = &candidate;
  }
  std::ranges::stable_sort(added, {}, [](const Candidate* candidate) {
    return candidate->order < 0 ? INT_MAX : candidate->order;
  });
  auto next = added.begin();
  for (auto& position : positions) {
    if (position == nullptr && next != added.end()) position = *next++;
  }
  std::erase(positions, nullptr);
  positions.insert(positions.end(), next, added.end());
  positions.resize(std::min(positions.size(), static_cast<std::size_t>(active)));
  return positions;
}

}  // namespace

std::vector<RoundAssignment> plan_round(const std::vector<Candidate>& candidates, int active) {
  std::vector<RoundAssignment> assignments;
  std::map<std::string, int> node_ranks, workers_of_node, workers_of_role;
  int ranks = 0, nodes = 0;
  const auto positions = positions_of(candidates, active);
  for (const Candidate* candidate : positions) {
    RoundAssignment assignment;
    assignment.member = candidate->member;
    assignment.slot = static_cast<int>(assignments.size());
    const auto [known, is_new] = node_ranks.emplace(candidate->node, nodes);
    assignment.ranks.node_rank = candidate->node.empty() ? nodes : known->second;
    if (candidate->node.empty() || is_new) ++nodes;
    assignment.ranks.first_rank = ranks;
    ranks += candidate->workers;
    int& on_node = workers_of_node[candidate->node];
    assignment.ranks.first_local_rank = candidate->node.empty() ? 0 : on_node;
    on_node += candidate->workers;
    int& of_role = workers_of_role[candidate->role];
    assignment.ranks.first_role_rank = of_role;
    of_role += candidate->workers;
    assignments.push_back(assignment);
  }
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    const Candidate& candidate = *positions[i];
    assignments[i].ranks.node_count = nodes;
    assignments[i].ranks.world_size = ranks;
    assignments[i].ranks.role_world_size = workers_of_role[candidate.role];
    assignments[i].ranks.local_world_size =
        candidate.node.empty() ? candidate.workers : workers_of_node[candidate.node];
  }
  return assignments;
}

}  // namespace torchbridge
