// Where the ranks of a job are: what each says of itself in the store, and what a message says of those that did not
// come.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/launch/launch.h"

namespace torchbridge::train {

struct RankLocation {
  int rank = 0;
  int node_rank = 0, local_rank = 0, local_world_size = 1;
  std::string host;
};

// Sets the key joined/RANK, by which a rank is known to be there.
void announce(c10d::Store& store, const Layout& layout);
// Waits for the ranks' keys.
std::vector<RankLocation> locations_of(c10d::Store& store, const std::vector<int>& ranks);

// The ranks of each node in ascending order, by the node of their lowest rank. Nodes are told apart by number and host.
std::vector<std::vector<int>> ranks_by_node(const std::vector<RankLocation>& locations);

// "rank 3 (n1)", "ranks 4,5 (n2, n3)", "rank 3": with the names of their nodes as far as the launcher tells, or as
// other ranks of the same node do.
std::string with_nodes(const std::vector<int>& missing, const Launch& launch, const std::vector<RankLocation>& present);

}  // namespace torchbridge::train
