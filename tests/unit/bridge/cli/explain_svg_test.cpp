#include "bridge/cli/explain_svg.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string svg_of(const std::vector<int>& tasks_per_node, std::vector<NodeFacts> nodes = {},
                   const char* launcher = "slurm<&>") {
  LaunchFacts facts;
  facts.launcher = launcher;
  facts.tasks_per_node = tasks_per_node;
  for (std::size_t i = 0; i < tasks_per_node.size(); ++i) {
    facts.nodes.push_back("n" + std::to_string(i));
    facts.world_size += tasks_per_node[i];
  }
  nodes.resize(tasks_per_node.size());
  const TaskMap map = TaskMap::block(tasks_per_node);
  return explain_svg(facts, map, {}, {}, torch_env_of(facts, map, {}, {"10.0.0.1", 20001}), nodes);
}

TEST(ExplainSvg, DrawsABoxForEachRankWithItsGpu) {
  const auto three = NodeFacts::of_tasks(
      {{"0", "0-7", "eth0", {}}, {"1", "0-7", "eth0", {}}, {"2", "0-7", "eth0", {}}});
  const std::string svg = svg_of({3, 1}, {three, NodeFacts::of_tasks({{"4,5", "", "", {}}})});
  EXPECT_EQ(count(svg, "<rect x="), 4) << svg;
  for (const char* part :
       {">4 ranks on 2 nodes, started by slurm&lt;&amp;> as run ", "MASTER_ADDR 10.0.0.1", ">n0<",
        ">n1<", ">GPU 0<", ">GPU 1<", ">GPU 2<", ">GPU 4,5<", ">3<", "eth0, CPUs 0-7"})
    EXPECT_EQ(count(svg, part) > 0, true) << part << svg;
}

TEST(ExplainSvg, NamesNoLauncherWhereThereIsNone) {
  const std::string svg = svg_of({1}, {}, "none");
  EXPECT_EQ(count(svg, ">1 rank on 1 node, started without a launcher<"), 1) << svg;
}

TEST(ExplainSvg, CountsWhatIsTooMuchToDraw) {
  EXPECT_EQ(count(svg_of({40}), "<rect x="), 32);
  EXPECT_EQ(count(svg_of({40}), ">and 8 more<"), 1);
  const std::string many = svg_of(std::vector<int>(300, 1));
  EXPECT_EQ(count(many, "<rect x="), 256);
  EXPECT_EQ(count(many, ">and 44 nodes more<"), 1);
}

}  // namespace
}  // namespace torchbridge
