// On which nodes the ranks of a job run: each rank publishes its own location in the store, and
// messages name the nodes of ranks that did not join.
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

// As text, and back; nothing where it has another form.
std::string own_location(const Layout& layout);
std::optional<RankLocation> location_of(int rank, const std::string& text);

// Sets the key joined/RANK, which shows that the rank has joined.
void announce(c10d::Store& store, const Layout& layout);
// Waits for the ranks' keys.
std::vector<RankLocation> locations_of(c10d::Store& store, const std::vector<int>& ranks);

// The ranks of each node, ascending; the nodes in the order of their lowest ranks. Number and host
// together identify a node.
std::vector<std::vector<int>> ranks_by_node(const std::vector<RankLocation>& locations);

// "rank 3 (n1)", "ranks 4,5 (n2, n3)", "rank 3": with the names of their nodes, where the launcher
// or other ranks of the same node give them.
std::string with_nodes(const std::vector<int>& missing, const Launch& launch,
                       const std::vector<RankLocation>& present);

}  // namespace torchbridge::train
