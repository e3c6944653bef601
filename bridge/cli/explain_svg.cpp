#include "bridge/cli/explain_svg.h"

#include <algorithm>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

constexpr int kDrawnNodes = 256, kDrawnRanks = 32;  // of one node
// In pixels.
constexpr int kMargin = 16, kRow = 52, kNames = 150, kBox = 64, kBoxHeight = 36, kHead = 64;

std::string text(int number) { return std::to_string(number); }

std::string escaped(const std::string& value) {
  std::string result;
  for (const char c : value) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '"') {
      result += "&quot;";
    } else {
      result += c;
    }
  }
  return result;
}

// Cut, with a mark, where it is longer.
std::string cut(const std::string& value, std::size_t longest) {
  return value.size() <= longest ? value : value.substr(0, longest - 2) + "..";
}

// `style` is a class of the style sheet below.
std::string word(int x, int y, const char* style, const std::string& value) {
  return "<text x=\"" + text(x) + "\" y=\"" + text(y) + "\" class=\"" + style + "\">" +
         escaped(value) + "</text>\n";
}

std::string node_row(const std::string& name, const NodeFacts& node, const std::vector<int>& ranks,
                     int y) {
  const std::string cpus = node.cpus.empty() ? "" : formatted("CPUs {}", node.cpus);
  const std::string beside =
      node.interface.empty() || cpus.empty() ? node.interface + cpus : node.interface + ", " + cpus;
  std::string row = "<g><title>" + escaped(name + ": " + beside) + "</title>\n" +
                    word(kMargin, y + 16, "name", cut(name, 20)) +
                    word(kMargin, y + 32, "small", cut(beside, 24));
  for (std::size_t i = 0; i < std::min<std::size_t>(ranks.size(), kDrawnRanks); ++i) {
    const int x = kMargin + kNames + static_cast<int>(i) * (kBox + 4);
    const std::string gpu = i < node.gpus_of_rank.size() ? node.gpus_of_rank[i] : "";
    row += "<rect x=\"" + text(x) + "\" y=\"" + text(y) + "\" width=\"" + text(kBox) +
           "\" height=\"" + text(kBoxHeight) + "\" rx=\"4\"/>\n" +
           word(x + kBox / 2, y + 16, "rank", text(ranks[i]));
    if (!gpu.empty()) row += word(x + kBox / 2, y + 30, "gpu", formatted("GPU {}", cut(gpu, 7)));
  }
  if (ranks.size() > kDrawnRanks)
    row += word(kMargin + kNames + kDrawnRanks * (kBox + 4), y + 22, "small",
                formatted("and {} more", static_cast<int>(ranks.size()) - kDrawnRanks));
  return row + "</g>\n";
}

}  // namespace

std::string explain_svg(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                        ExportedMaster /*exported*/, const TorchEnv& env,
                        const std::vector<NodeFacts>& nodes) {
  const auto ranks = ranks_by_node(map, options.ranks);
  const int drawn = std::min(map.node_count(), kDrawnNodes);
  std::size_t most = 0;
  for (int node = 0; node < drawn; ++node) most = std::max(most, ranks[node].size());
  const int columns = static_cast<int>(std::min<std::size_t>(most, kDrawnRanks));
  const bool has_more = most > kDrawnRanks;
  const int width =
      std::max(480, 2 * kMargin + kNames + columns * (kBox + 4) + (has_more ? 70 : 0));
  const int height = kHead + drawn * kRow + (map.node_count() > drawn ? 30 : 0) + kMargin;
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + text(width) + "\" height=\"" +
      text(height) + "\" viewBox=\"0 0 " + text(width) + " " + text(height) + "\">\n" +
      "<style>text{font:13px sans-serif;fill:#222}.name{font-weight:bold}.small{font-size:11px}"
      ".rank{font-weight:bold;text-anchor:middle}.gpu{font-size:10px;text-anchor:middle}"
      "rect{fill:#e3e7f7;stroke:#3f51b5}</style>\n"
      "<rect width=\"100%\" height=\"100%\" style=\"fill:#fff;stroke:none\"/>\n" +
      word(kMargin, 26, "name", layout_title(facts, map, env)) +
      word(kMargin, 46, "small",
           formatted("MASTER_ADDR {}, MASTER_PORT {}", env.master.host, env.master.port));
  for (int node = 0; node < drawn; ++node) {
    const std::string name = facts.nodes.empty() ? formatted("node {}", node) : facts.nodes[node];
    svg += node_row(name, nodes[node], ranks[node], kHead + node * kRow);
  }
  if (map.node_count() > drawn)
    svg += word(kMargin, kHead + drawn * kRow + 16, "small",
                formatted("and {} nodes more", map.node_count() - drawn));
  return svg + "</svg>\n";
}

}  // namespace torchbridge
