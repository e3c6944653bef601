#include <cstring>

#include "bridge/base/message_text.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/launchers/variable_reader.h"

namespace torchbridge {
namespace {

// The parts of the file that are used, as Slurm's and Flux's own writers of it lay them out: a
// version and a total size, then for each array (communication profiles, commands, ranks, nodes,
// network cards) the size of an element, the offset of the first, and their number, as C size_ts
// and ints.
constexpr std::size_t kHeaderSize = 136, kRanks = 64, kNodes = 88;
constexpr std::size_t kRankSize = 12, kNodeOfRank = 8;  // of a rank: local rank, command, node
constexpr std::size_t kNodeSize = 68, kNameOfNode = 4;  // of a node: its number, its name

struct Array {
  std::size_t element_size, offset;
  int count;
};

template <class Number>
Number number_at(std::string_view content, std::size_t offset) {
  Number number;
  std::memcpy(&number, content.data() + offset, sizeof number);
  return number;
}

Array array_at(std::string_view content, std::size_t offset) {
  return {number_at<std::size_t>(content, offset), number_at<std::size_t>(content, offset + 8),
          number_at<int>(content, offset + 16)};
}

bool fits(const Array& array, std::size_t least_size, std::string_view content) {
  return array.count >= 1 && array.count <= kMaxRanks && array.element_size >= least_size &&
         array.element_size <= 4096 && array.offset >= kHeaderSize &&
         array.offset <= content.size() &&
         array.element_size * static_cast<std::size_t>(array.count) <=
             content.size() - array.offset;
}

}  // namespace

bool detect_pals(const EnvMap& environment) { return environment.has("PALS_RANKID"); }

Result<LaunchFacts> read_pals(const EnvMap& environment) {
  VariableReader read(environment);
  LaunchFacts facts;
  facts.launcher = "pals";
  facts.world_size = read.integer_or("PMI_SIZE", 1, kMaxRanks, 0);
  const int most = facts.world_size > 0 ? facts.world_size : kMaxRanks;
  facts.rank = read.integer("PALS_RANKID", 0, most - 1);
  facts.node_rank = read.integer_or("PALS_NODEID", 0, kMaxRanks, 0);
  facts.local_size =
      read.integer_or("PALS_LOCAL_SIZE", 1, most, read.integer_or("PMI_LOCAL_SIZE", 1, most, 0));
  facts.local_rank = read.integer_or("PALS_LOCAL_RANKID", 0, most - 1, 0);
  const int pmi_rank = read.integer_or("PMI_RANK", 0, kMaxRanks, facts.rank);
  if (read.error() != nullptr) return *read.error();
  if (pmi_rank != facts.rank) {
    return Error{
        formatted("PALS_RANKID='{}', but PMI_RANK='{}': the variables of two launchers are mixed; "
                  "unset those of the outer one (env -u NAME)",
                  facts.rank, pmi_rank)};
  }
  facts.job_id = read.text("PALS_APID");
  if (facts.local_size == facts.world_size && facts.world_size > 0) {
    facts.node_rank = 0;
    facts.tasks_per_node = {facts.world_size};
    facts.local_rank = facts.rank;
    if (!facts.job_id.empty()) facts.node_key = "pals " + facts.job_id;
  }
  return facts;
}

Status add_pals_apinfo(LaunchFacts& facts, std::string_view content) {
  const auto wrong = [](std::string_view why) { return Error{formatted("PALS_APINFO: {}", why)}; };
  if (content.size() < kHeaderSize) return wrong("the file is shorter than its header");
  const Array ranks = array_at(content, kRanks), nodes = array_at(content, kNodes);
  if (!fits(ranks, kRankSize, content) || !fits(nodes, kNodeSize, content))
    return wrong("the layout of the file is not known");
  if (facts.rank >= ranks.count || (facts.world_size > 0 && ranks.count != facts.world_size)) {
    return wrong(formatted("the file lists {} ranks, but {}='{}'", ranks.count,
                           facts.world_size > 0 ? "PMI_SIZE" : "PALS_RANKID",
                           facts.world_size > 0 ? facts.world_size : facts.rank));
  }
  const auto listed_node = [&](int rank) {
    return number_at<int>(
        content, ranks.offset + ranks.element_size * static_cast<std::size_t>(rank) + kNodeOfRank);
  };
  if (const int node = listed_node(facts.rank);
      facts.local_size != facts.world_size && node != facts.node_rank) {
    return wrong(formatted("the file has rank {} on node {}, but PALS_NODEID='{}'", facts.rank,
                           node, facts.node_rank));
  }

  std::vector<int> node_of_rank, number_of(nodes.count, -1);  // nodes without ranks get no number
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks.count; ++rank) {
    const int node = listed_node(rank);
    if (node < 0 || node >= nodes.count) {
      return wrong(formatted("the file has rank {} on node {}, but lists {} nodes", rank, node,
                             nodes.count));
    }
    if (number_of[node] < 0) {
      number_of[node] = static_cast<int>(names.size());
      const auto field = content.substr(
          nodes.offset + nodes.element_size * static_cast<std::size_t>(node) + kNameOfNode,
          kNodeSize - kNameOfNode);
      const auto name = field.substr(0, field.find('\0'));
      if (name.empty() || printable(name) != name) return wrong("a node has no readable name");
      names.emplace_back(name);
    }
    node_of_rank.push_back(number_of[node]);
  }
  facts.world_size = ranks.count;
  facts.nodes = std::move(names);
  facts.node_of_rank = std::move(node_of_rank);
  facts.node_rank = facts.node_of_rank[facts.rank];
  facts.tasks_per_node.clear();
  return Ok{};
}

}  // namespace torchbridge
