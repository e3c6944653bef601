#include <cstring>

#include <gtest/gtest.h>

#include "bridge/core/launchers/launchers.h"
#include "tests/unit/bridge/core/launchers/pals_apinfo.h"

namespace torchbridge {
namespace {

// As HPE's pals.h names them (cray-pals), on the second of two nodes with 2 and 1 ranks.
const EnvMap kPals = {
    {"PALS_APID", "0123-abcd"}, {"PALS_RANKID", "2"},     {"PALS_NODEID", "1"},
    {"PALS_LOCAL_RANKID", "0"}, {"PALS_LOCAL_SIZE", "1"}, {"PMI_RANK", "2"},
    {"PMI_SIZE", "3"},          {"PMI_LOCAL_RANK", "0"},  {"PMI_CONTROL_PORT", "7000,7001"}};

LaunchFacts facts() {
  const auto read = read_pals(kPals);
  EXPECT_TRUE(read) << read.error().message;
  return *read;
}

TEST(Pals, ReadsVariables) {
  EXPECT_EQ(facts().rank, 2);
  EXPECT_EQ(facts().node_rank, 1);
  EXPECT_EQ(facts().local_size, 1);
  EXPECT_EQ(facts().job_id, "0123-abcd");
  EXPECT_TRUE(facts().needs_node_exchange());
}

TEST(Pals, TheFileContainsTheNodeOfEveryRank) {
  LaunchFacts completed = facts();
  const auto added = add_pals_apinfo(completed, apinfo({0, 0, 1}, {"x1000", "x1001"}));
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(completed.node_of_rank, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(completed.nodes, (std::vector<std::string>{"x1000", "x1001"}));
}

// mpiexec --pmi=pmix and --pmi=none.
TEST(Pals, TheFileContainsTheNumberOfRanksThatNoVariableGives) {
  EnvMap environment;
  for (const auto& [name, value] : kPals) {
    if (!name.starts_with("PMI_")) environment.set(name, value);
  }
  auto completed = read_pals(environment);
  ASSERT_TRUE(completed) << completed.error().message;
  EXPECT_EQ(completed->world_size, 0);
  EXPECT_EQ(add_pals_apinfo(*completed, apinfo({0, 1}, {"x1000", "x1001"})).error().message,
            "PALS_APINFO: the file lists 2 ranks, but PALS_RANKID='2'");
  const auto added = add_pals_apinfo(*completed, apinfo({0, 0, 1}, {"x1000", "x1001"}));
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(completed->world_size, 3);
}

TEST(Pals, NodesWithoutRanksAreNotCounted) {
  LaunchFacts completed = facts();
  completed.node_rank = 2;
  ASSERT_TRUE(add_pals_apinfo(completed, apinfo({3, 3, 2}, {"a", "b", "c", "d"})));
  EXPECT_EQ(completed.nodes, (std::vector<std::string>{"d", "c"}));
  EXPECT_EQ(completed.node_rank, 1);
}

TEST(Pals, AFileThatIsDamagedOrOfAnotherJobIsRejected) {
  const std::string good = apinfo({0, 0, 1}, {"x1000", "x1001"});
  std::string large = good, far = good;
  std::memset(&large[80], 0x7f, 4);
  std::memset(&far[72], 0xff, 8);
  const struct {
    std::string content;
    const char* message;
  } kCases[] = {
      {"", "PALS_APINFO: the file is shorter than its header"},
      {good.substr(0, 135), "PALS_APINFO: the file is shorter than its header"},
      {good.substr(0, good.size() - 1), "PALS_APINFO: the layout of the file is not known"},
      {large, "PALS_APINFO: the layout of the file is not known"},
      {far, "PALS_APINFO: the layout of the file is not known"},
      {apinfo({0, 1}, {"a", "b"}), "PALS_APINFO: the file lists 2 ranks, but PMI_SIZE='3'"},
      {apinfo({0, 1, 0}, {"a", "b"}),
       "PALS_APINFO: the file has rank 2 on node 0, but PALS_NODEID='1'"},
      {apinfo({2, 0, 1}, {"a", "b"}),
       "PALS_APINFO: the file has rank 0 on node 2, but lists 2 nodes"},
      {apinfo({0, 0, 1}, {"a", "b\n"}), "PALS_APINFO: a node has no readable name"},
  };
  for (const auto& test : kCases) {
    LaunchFacts unchanged = facts();
    const auto added = add_pals_apinfo(unchanged, test.content);
    ASSERT_FALSE(added) << test.message;
    EXPECT_EQ(added.error().message, test.message);
    EXPECT_TRUE(unchanged.nodes.empty());
  }
}

TEST(Pals, InheritedVariablesAreIgnored) {
  EnvMap environment = kPals;
  environment.set("PMI_RANK", "0");
  EXPECT_EQ(read_pals(environment).error().message,
            "PALS_RANKID='2', but PMI_RANK='0': the variables of two launchers are mixed; unset "
            "those of the outer one "
            "(env -u NAME)");
}

}  // namespace
}  // namespace torchbridge
