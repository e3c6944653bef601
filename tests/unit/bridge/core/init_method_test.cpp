#include "bridge/core/init_method.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Kind = InitMethod::Kind;

TEST(InitMethod, IsReadFromAUrl) {
  const struct {
    const char* url;
    InitMethod expected;
  } cases[] = {
      {"", {}},
      {"env://", {.kind = Kind::kEnvironment}},
      {"env://?rank=3&world_size=4", {.kind = Kind::kEnvironment, .ranks = {3, 4}}},
      {"tcp://n0:29500", {.kind = Kind::kTcp, .endpoint = {"n0", 29500}}},
      {"tcp://10.0.0.1:29500?world_size=8&rank=0",
       {.kind = Kind::kTcp, .endpoint = {"10.0.0.1", 29500}, .ranks = {0, 8}}},
      {"tcp://[fd00::1]:29500", {.kind = Kind::kTcp, .endpoint = {"fd00::1", 29500}}},
      {"file:///scratch/run one?rank=1",
       {.kind = Kind::kFile, .path = "/scratch/run one", .ranks = {1, std::nullopt}}},
      {"slurm://", {.kind = Kind::kSlurm}},
      {"mpi://", {.kind = Kind::kMpi}},
      {"pmix://", {.kind = Kind::kPmix}},
  };
  for (const auto& c : cases) {
    const auto method = parse_init_method(c.url);
    ASSERT_TRUE(method) << c.url << ": " << method.error().message;
    EXPECT_EQ(*method, c.expected) << c.url;
  }
}

TEST(InitMethod, RejectsMalformedUrls) {
  for (const char* url : {"env",
                          "env:/",
                          "http://n0:80",
                          "tcp://",
                          "tcp://n0",
                          "tcp://n0:0",
                          "tcp://n0:65536",
                          "tcp://:29500",
                          "tcp://fd00::1:29500",
                          "tcp://[n0]:29500",
                          "tcp://n0:29500/x",
                          "tcp://a b:29500",
                          "tcp://tcp://n0:29500",
                          "file://",
                          "file:///",
                          "file://relative",
                          "file:///folder/",
                          "slurm://n0",
                          "env://?rank",
                          "env://?rank=",
                          "env://?rank=-1",
                          "env://?rank=1&rank=1",
                          "env://?size=4",
                          "env://?rank=one",
                          "TCP://n0:29500",
                          "env://rank=0"}) {
    const auto method = parse_init_method(url);
    ASSERT_FALSE(method) << url;
    EXPECT_NE(method.error().message.find("'" + std::string(url) + "'"), std::string::npos)
        << method.error().message;
  }
}

TEST(AgreedRanks, MayComeFromAnySideOrSeveral) {
  const InitMethod query = *parse_init_method("tcp://n0:1?rank=2");
  EXPECT_EQ(*agreed_ranks({}, query, {{"WORLD_SIZE", "4"}}), (GivenRanks{2, 4}));
  EXPECT_EQ(*agreed_ranks({2, 4}, query, {{"RANK", "2"}, {"WORLD_SIZE", "4"}}), (GivenRanks{2, 4}));
  EXPECT_EQ(*agreed_ranks({}, {}, {}), GivenRanks());
}

TEST(AgreedRanks, ContradictionsShowBothSides) {
  const InitMethod query = *parse_init_method("tcp://n0:1?rank=2&world_size=4");
  const struct {
    GivenRanks arguments;
    EnvMap environment;
    const char* message;
  } cases[] = {
      {{1, std::nullopt}, {}, "the rank is 1 in the program's arguments, but 2 in the init method"},
      {{}, {{"RANK", "0"}}, "the rank is 2 in the init method, but 0 in RANK"},
      {{std::nullopt, 8},
       {},
       "the world size is 8 in the program's arguments, but 4 in the init method"},
      {{}, {{"WORLD_SIZE", "x"}}, "WORLD_SIZE='x'"},
  };
  for (const auto& c : cases) {
    const auto ranks = agreed_ranks(c.arguments, query, c.environment);
    ASSERT_FALSE(ranks) << c.message;
    EXPECT_NE(ranks.error().message.find(c.message), std::string::npos) << ranks.error().message;
  }
  for (const GivenRanks& impossible : {GivenRanks{4, 4}, GivenRanks{-1, 4}, GivenRanks{0, 0}}) {
    EXPECT_FALSE(agreed_ranks(impossible, {}, {}));
  }
}

}  // namespace
}  // namespace torchbridge
