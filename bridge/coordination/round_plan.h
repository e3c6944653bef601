// Which agents take part in a round, and their ranks: a pure function.
#pragma once

#include <string>
#include <vector>

#include "bridge/run_values/worker_ranks.h"

namespace torchbridge {

// An agent that could take part.
struct Candidate {
  int member = 0;          // who; returned in RoundAssignment
  int workers = 1;         // at least 1
  int order = -1;          // position that the launcher or --node-rank gives, or -1
  std::string node;        // as Join::node
  int previous_slot = -1;  // position in the round before; -1: it did not take part
  std::string role;        // as Join::role
};

struct RoundAssignment {
  int member = 0, slot = 0;
  WorkerRanks ranks;
  bool operator==(const RoundAssignment&) const = default;
};

// At most `active` of the candidates, in the order of their slots. Who took part in the round
// before keeps its position as far as it can: a new agent takes the position of one that is gone,
// others are added at the end, and where agents are fewer than before the positions close up. New
// agents come by `order`, then as in `candidates`. Ranks are numbered agent by agent, local ranks
// and nodes by `node`, ranks of a role by `role`; numbers of workers may differ. REQUIRES: active
// >= 1.
std::vector<RoundAssignment> plan_round(const std::vector<Candidate>& candidates, int active);

}  // namespace torchbridge
