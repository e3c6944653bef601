#include "trainer_template/runtime/rendezvous/rank_locations.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "bridge/base/env_map.h"
#include "bridge/net/address.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

// The launcher's names of the nodes, where its ranks are those of this run.
class LauncherNodes {
 public:
  explicit LauncherNodes(const Launch& launch) {
    const LaunchFacts* facts = launch.plan             ? &launch.plan->facts
                               : launch.matching_facts ? &*launch.matching_facts
                                                       : nullptr;
    if (facts == nullptr || facts->rank != launch.env.layout.rank) return;
    names_ = facts->nodes;
    if (auto map = task_map_of(*facts)) map_ = *std::move(map);
  }

  std::string node_of(int rank) const {
    if (!map_ || rank >= map_->world_size() || !map_->knows(rank)) return {};
    const auto node = static_cast<std::size_t>(map_->node_of(rank));
    return node < names_.size() ? names_[node] : std::string();
  }

 private:
  std::vector<std::string> names_;
  std::optional<TaskMap> map_;
};

// The nodes by their first rank, where all ranks that joined are numbered node by node, as torchrun
// does; else nothing.
std::map<int, RankLocation> blocks_of(const std::vector<RankLocation>& present) {
  std::map<int, RankLocation> blocks;
  std::map<std::pair<int, std::string>, int> first_of;
  for (const RankLocation& location : present) {
    const int first = location.rank - location.local_rank;
    const RankLocation& known = blocks.emplace(first, location).first->second;
    const bool same = known.host == location.host && known.node_rank == location.node_rank &&
                      known.local_world_size == location.local_world_size;
    if (!same ||
        first_of.emplace(std::pair(location.node_rank, location.host), first).first->second !=
            first)
      return {};
  }
  int end = 0;
  for (const auto& [first, location] : blocks) {
    if (first < end) return {};
    end = first + location.local_world_size;
  }
  return blocks;
}

// A missing rank between the ranks of one node is on that node.
std::string node_by_neighbours(int rank, const std::map<int, RankLocation>& blocks) {
  auto after = blocks.upper_bound(rank);
  if (after == blocks.begin()) return {};
  const auto& [first, location] = *std::prev(after);
  return rank < first + location.local_world_size ? location.host : std::string();
}

}  // namespace

std::string own_location(const Layout& layout) {
  return std::to_string(layout.node_rank) + " " + std::to_string(layout.local_rank) + " " +
         std::to_string(layout.local_world_size) + " " + host_name();
}

std::optional<RankLocation> location_of(int rank, const std::string& text) {
  constexpr int kMostRanks = 1 << 20;
  std::istringstream words(text);
  RankLocation found{.rank = rank};
  words >> found.node_rank >> found.local_rank >> found.local_world_size >> found.host;
  const bool is_right = found.node_rank >= 0 && found.local_rank >= 0 &&
                        found.local_rank < found.local_world_size &&
                        found.local_world_size <= kMostRanks;
  found.host = printable(found.host);
  return words && is_right ? std::optional(found) : std::nullopt;
}

void announce(c10d::Store& store, const Layout& layout) {
  put(store, key("joined", layout.rank), own_location(layout));
}

std::vector<RankLocation> locations_of(c10d::Store& store, const std::vector<int>& ranks) {
  std::vector<RankLocation> locations;
  for (int rank : ranks) {
    const std::string name = key("joined", rank), text = get(store, name);
    const auto location = location_of(rank, text);
    if (!location) throw changed_key(name, text, "the location of a rank");
    locations.push_back(*location);
  }
  return locations;
}

std::vector<std::vector<int>> ranks_by_node(const std::vector<RankLocation>& locations) {
  std::map<std::pair<int, std::string>, std::vector<int>> nodes;
  for (const RankLocation& location : locations)
    nodes[{location.node_rank, location.host}].push_back(location.rank);
  std::vector<std::vector<int>> found;
  for (auto& [node, ranks] : nodes) {
    std::ranges::sort(ranks);
    found.push_back(std::move(ranks));
  }
  std::ranges::sort(found);
  return found;
}

std::string with_nodes(const std::vector<int>& missing, const Launch& launch,
                       const std::vector<RankLocation>& present) {
  const LauncherNodes nodes_of_launcher(launch);
  const auto blocks =
      launch.is_local_size_known ? blocks_of(present) : std::map<int, RankLocation>();
  std::vector<std::string> nodes;
  for (int rank : missing) {
    std::string node = nodes_of_launcher.node_of(rank);
    if (node.empty()) node = node_by_neighbours(rank, blocks);
    if (!node.empty() && std::ranges::count(nodes, node) == 0) nodes.push_back(printable(node));
  }
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(nodes.size(), kShown); ++i)
    text += (i ? ", " : "") + nodes[i];
  if (nodes.size() > kShown) text += ", ...";
  return list_of(missing) + (text.empty() ? "" : " (" + text + ")");
}

}  // namespace torchbridge::train
