// init_process_group as a program uses it: stores, options, subgroups, and its end.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "bridge/net/address.h"
#include "tests/support/paths.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizer.h"

namespace {

constexpr std::chrono::seconds kSoon{20};

Words run(const std::string& name, const std::string& argument = "") {
  return {in_build("bin/group_cases"), name, argument};
}

// Two nodes of two ranks each; with "cyclic" the ranks alternate between them.
Words on_two_nodes(const std::string& name, bool cyclic) {
  const std::string location = cyclic ? "LOCAL_RANK=$((RANK/2)) GROUP_RANK=$((RANK%2))"
                                      : "LOCAL_RANK=$((RANK%2)) GROUP_RANK=$((RANK/2))";
  return {"/bin/sh", "-c",
          location + " LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2 exec " + in_build("bin/group_cases") +
              " " + name};
}

TEST(Group, JoinsAtAStoreOfTheProgram) {
  TemporaryFolder folder;
  for (const std::string kind : {"tcp:", "file:", "prefix:"}) {
    Ranks ranks(3, run("given_store", kind + (folder / ("store-" + kind)).string()));
    expect_success(ranks);
  }
  Ranks threads(1, run("hash_store"));
  expect_success(threads);
}

TEST(Group, ContradictionsShowBothValues) {
  Ranks both(1, run("store_and_method"));
  expect_error(both, "both a store and an init method are given");
  Ranks sizes(1, run("argument_against_variable"));
  expect_error(sizes, "the world size is 7 in the program's arguments, but 1 in WORLD_SIZE");
}

TEST(Group, EndsWithItsScope) {
  Ranks ranks(3, run("ends_with_its_scope"));
  expect_success(ranks);
}

TEST(Group, TheStoreOfAnEarlierGroupIsNotUsedByTheNext) {
  TemporaryFolder folder;
  Ranks ranks(2, run("before_the_store_is_closed", (folder / "flag").string()));
  expect_success(ranks);
}

TEST(Group, TheNextAttemptWaitsUntilTheOneBeforeHasEnded) {
  TemporaryFolder folder;
  const Variables next = {{"TORCHELASTIC_RESTART_COUNT", "1"}};
  Ranks before(2, run("ends_when_the_next_attempt_connects", (folder / "formed").string()),
               {{"TORCHELASTIC_RESTART_COUNT", "0"}});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "formed"); }));
  Ranks early({1}, 2, before.port(), run("until_the_program_ends"), next);
  expect_success(before);
  Ranks late({0}, 2, before.port(), run("until_the_program_ends"), next);
  expect_success(early);
  expect_success(late);
}

TEST(Group, EndsWithTheProgram) {
  for (const int world_size : {1, 3}) {
    Ranks ranks(world_size, run("until_the_program_ends"));
    expect_success(ranks);
    EXPECT_EQ(ranks.errors(), "");
  }
}

TEST(Group, EndsWithAnExceptionAndTheOthersNotice) {
  Ranks ranks(3, run("an_exception"));
  const std::vector<int> codes = ranks.wait(kSoon);
  EXPECT_EQ(codes, (std::vector<int>{1, 1, 1})) << ranks.errors();  // not 134, an abort
  EXPECT_EQ(ranks.error(1), "the disk of rank 1 is full\n");
  // Whichever of the abort and the end of the process rank 0 notices first.
  const std::string other = ranks.error(0);
  EXPECT_TRUE(other.find("aborted the group") != std::string::npos ||
              other.find("onnection") != std::string::npos)
      << "rank 0 must notice at once: " << other;
}

TEST(Group, ARankThatIsLateIsNamed) {
  TemporaryFolder folder;
  Ranks ranks(3, run("a_late_rank", (folder / "timed-out").string()));
  expect_one_line(ranks, "rank 1 on " + torchbridge::host_name() +
                             " reached a collective after the other ranks had timed out");
}

// As NCCL does: nothing wakes the rank that waits for the GPU, and the abort may hang.
TEST(Group, AnErrorThatOnlyTheBackendKnowsEndsTheRanksWithOneLine) {
  TemporaryFolder folder;
  const std::string timed_out = folder / "timed-out",
                    rank_1 = "rank 1 on " + torchbridge::host_name();
  const std::map<std::string, std::string> kCases = {
      {"gone", rank_1 + " did not take part in a collective in time"},
      {"abort hangs", rank_1 + " did not take part in a collective in time"},
      {"slow abort", rank_1 + " did not take part in a collective in time"},
      {"slow abort of a rank that fails", "the disk of rank 1 is full"},
      {"slow abort of a rank without memory", "rank 1 has no memory"},
      {"slow abort of a rank whose download times out", "the download timed out"},
      {"slow abort of rank 2", rank_1 + " did not take part in a collective in time"},
      {timed_out, rank_1 + " reached a collective after the other ranks had timed out"},
      {"network", "the backend's connections between the ranks failed; its own log has the reason"},
      {"throws", "the backend's connections between the ranks failed"},
      {"network of rank 0", "the backend's connections between the ranks failed"},
  };
  for (const auto& [how, expected] : kCases) {
    Ranks ranks(3, run("only_the_backend_knows", how));
    expect_one_line(ranks, expected);
  }
  Ranks killed(3, run("only_the_backend_knows", "slow abort after a kill"));
  EXPECT_EQ(killed.wait(kSoon)[1], 128 + SIGKILL) << killed.errors();
  EXPECT_TRUE(contains(killed.errors(), "the connection to " + rank_1 + " was lost"))
      << killed.errors();
  EXPECT_EQ(lines_in(killed.errors()), 1) << killed.errors();
}

TEST(Group, ARankThatLeavesLateIsNamed) {
  TemporaryFolder folder;
  Ranks ranks(3, run("leaves_late", (folder / "timed-out").string()));
  expect_one_line(ranks, "rank 1 on " + torchbridge::host_name() +
                             " reached a collective after the other ranks had timed out");
}

TEST(Group, ARankThatIsLateIsNamedAloneWhereTheOthersComeApart) {
  TemporaryFolder folder;
  const std::string rank_1 = "rank 1 on " + torchbridge::host_name();
  const std::map<std::string, std::string> kLines = {
      {"late", rank_1 + " reached a collective after the other ranks had timed out"},
      {"never", rank_1 + " did not take part in a collective in time"}};
  for (const auto& [how, line] : kLines) {
    const std::string file = folder / how;
    Ranks sum(3, run("late_for_others_apart", "sum " + how + " " + file));
    Ranks subgroup(3, run("late_for_others_apart", "subgroup " + how + " " + file + "-subgroup"));
    expect_one_line(sum, line);
    expect_one_line(subgroup, line);
  }
}

TEST(Group, ARankThatComputesIsNotEndedByTheFailureOfAnother) {
  Ranks ranks(4, run("fails_while_others_compute"));
  EXPECT_EQ(ranks.wait(kSoon), (std::vector<int>{1, 2, 2, 2})) << ranks.errors();
  EXPECT_EQ(ranks.errors(), "the disk of rank 0 is full\n");
}

// Over NCCL alone leave() waits for the GPU.
TEST(Group, ARankThatDoesNotLeaveIsNamedWithoutAHeartbeatToo) {
  TemporaryFolder folder;
  Ranks ranks(2, run("does_not_leave", (folder / "ended").string()));
  EXPECT_EQ(ranks.wait(), (std::vector<int>{1, 2})) << ranks.errors();
  const std::string expected =
      "rank 1 on " + torchbridge::host_name() + " did not take part in a collective in time";
  EXPECT_TRUE(contains(ranks.errors(), expected)) << ranks.errors();
  EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
}

TEST(Group, HasSubgroupsByRanksAndByNodes) {
  Ranks blocks(4, on_two_nodes("subgroups", false));
  expect_success(blocks);
  EXPECT_EQ(blocks.out(0), "node 0,1 across 0,2\n");
  EXPECT_EQ(blocks.out(3), "node 2,3 across 1,3\n");
  Ranks cyclic(4, on_two_nodes("subgroups", true));
  expect_success(cyclic);
  EXPECT_EQ(cyclic.out(3), "node 1,3 across 2,3\n");
}

TEST(Group, AHandledExceptionThatLeftASubgroupCostsNothing) {
  Ranks ranks(3, run("handles_an_exception"));
  expect_success(ranks);
  Ranks hanging(3, run("handles_an_exception", "hangs"));
  expect_one_line(hanging, "the connections of an earlier subgroup did not close within 5 s");
}

TEST(Group, ARankThatIsKilledBeforeASubgroupIsNamedSoon) {
  Ranks ranks(3, run("killed_before_a_subgroup"));
  EXPECT_EQ(ranks.wait(kSoon)[1], 128 + SIGKILL) << ranks.errors();
  const std::string expected =
      "the connection to rank 1 on " + torchbridge::host_name() + " was lost";
  EXPECT_TRUE(contains(ranks.errors(), expected)) << ranks.errors();
  EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
}

TEST(Group, AnErrorOfTheProgramsOwnStoreThatNothingCatchesKeepsItsText) {
  Ranks ranks(3, run("throws_in_a_thread"));
  expect_one_line(ranks, "the store of the cache is full");
}

TEST(Group, UsesBackendsOfTheProgram) {
  Ranks ranks(2, run("registered_backend"));
  expect_success(ranks);
}

TEST(Group, HasBackendsByNameAndByDevice) {
  for (const auto& [text, shown] :
       std::map<std::string, std::string>{{"", "gloo over shared memory"}, {"cpu:GLOO", "gloo"}}) {
    Ranks ranks(2, run("with_backend", text));
    expect_success(ranks);
    EXPECT_EQ(ranks.out(0), shown + "\n");
  }
}

TEST(Group, ImpossibleBackendsAreReportedOnce) {
  const std::map<std::string, std::string> kCases = {
      {"tpu", "backend 'tpu': libtorchbridge_tpu.so"},
      {"cpu:nccl", "nccl"},
      {"moon:gloo", "libtorch has no device 'moon'"},
  };
  for (const auto& [text, expected] : kCases) {
    Ranks ranks(2, run("with_backend", text));
    expect_one_line(ranks, expected);
  }
}

// With an error, or killed: the others, which wait for it in the backend, end too, and one line
// gives the reason.
TEST(Group, ARankThatFailsWhileTheBackendConnectsEndsTheOthers) {
  Ranks fails(3, run("fails_in_the_backend", "throws"));
  const std::string location = "127.0.0.1 port " + std::to_string(fails.port());
  expect_one_line(fails, "cannot form the process group at " + location + ": no interface ib9");
  Ranks killed(3, run("fails_in_the_backend", "killed"));
  EXPECT_EQ(killed.wait(kSoon), (std::vector<int>{1, 128 + SIGKILL, 1})) << killed.errors();
  EXPECT_EQ(lines_in(killed.errors()), 1) << killed.errors();
  // Its host is in the store, which may not answer in time while the backend waits for it, too.
  EXPECT_TRUE(contains(killed.errors(), "the connection to rank 1 ")) << killed.errors();
  EXPECT_TRUE(contains(killed.errors(), " was lost: process killed")) << killed.errors();
}

TEST(Group, AnAbortThatHangsEndsTheProcessWithItsMessage) {
  Ranks ranks(2, run("abort_hangs"));
  expect_one_line(ranks, "rank 1: the disk of rank 1 is full");
  Ranks unwinding(2, run("abort_hangs", "unwinds"));
  expect_one_line(unwinding, "the connections between the ranks were lost");
}

// gloo shows a lost connection only to those that use it, and gloo 2.11 not always to them.
TEST(Group, ARankThatWaitsWhileAnotherIsGoneEnds) {
  Ranks ranks(3, run("waits_for_another"));
  const std::vector<int> codes = ranks.wait(kSoon);
  EXPECT_EQ(codes[1], 128 + SIGKILL);
  EXPECT_EQ(std::min(codes[0], codes[2]), 1) << ranks.errors();  // the one that reports
  EXPECT_EQ(std::max(codes[0], codes[2]), 2);
  EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
  const std::string expected =
      "the connection to rank 1 on " + torchbridge::host_name() + " was lost: process killed";
  EXPECT_TRUE(contains(ranks.errors(), expected)) << ranks.errors();
}

// What can be tested without a GPU: its library opens next to libtorch, and registers its devices.
TEST(Group, TheLibraryOfNcclOpens) {
  if (std::string_view(NCCL_LIBRARY).empty()) GTEST_SKIP() << "the backend nccl was not built";
  Ranks ranks(1, run("library", "nccl"));
  expect_success(ranks);
  const std::string out = ranks.out(0), first = "cuda\n";
  ASSERT_TRUE(out.starts_with(first)) << out;
  const auto record = nlohmann::json::parse(out.substr(first.size()));
  for (const auto& one : {record, record.at("nccl")}) EXPECT_TRUE(one.contains("version")) << out;
}

TEST(Group, AnNcclThatIsTooOldIsNamed) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer wants to be the first library";
  if (std::string_view(NCCL_LIBRARY).empty()) GTEST_SKIP() << "the backend nccl was not built";
  Ranks ranks(1, run("library", "nccl"),
              {{"LD_PRELOAD", in_build("tests/programs/libold_nccl.so")}});
  expect_one_line(ranks,
                  "backend 'nccl': libnccl.so.2 is NCCL 2.18.5, but libtorch was built for 2.");
}

TEST(Group, GlooUsesTheGivenInterface) {
  Ranks ranks(2, run("gloo_options", "lo"));
  expect_success(ranks);
  Ranks wrong(2, run("gloo_options", "ib9"));
  expect_error(wrong, "gloo's interface 'ib9'");
  EXPECT_TRUE(contains(wrong.errors(), "it has lo"));
}

TEST(Group, SumsOverSharedMemoryAreGloosBitForBit) {
  for (const int world_size : {2, 3, 5, 8}) {
    Ranks ranks(world_size, run("shared_memory"));
    expect_success(ranks);
  }
}

// A job may have such a limit. Where no memory can be shared, gloo's connections are used, and no
// signal ends the rank.
TEST(Group, ALimitOnFileSizesEndsNoRank) {
  Ranks ranks(
      2, {"/bin/sh", "-c",
          "ulimit -c 0; ulimit -f 200; exec " + in_build("bin/group_cases") + " with_backend"});
  expect_success(ranks);
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.out(rank), "gloo\n");
}

// One rank records its collectives, which only gloo does: then no rank uses shared memory.
TEST(Group, SharesMemoryOnAllRanksOrOnNone) {
  const std::string records = "if [ $RANK = 1 ]; then export TORCH_FR_BUFFER_SIZE=10; fi; ";
  Ranks ranks(3,
              {"/bin/sh", "-c", records + "exec " + in_build("bin/group_cases") + " with_backend"});
  expect_success(ranks);
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.out(rank), "gloo\n");
  Ranks all(3, run("with_backend"));
  expect_success(all);
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(all.out(rank), "gloo over shared memory\n");
}

TEST(Group, DifferentCollectivesOverSharedMemoryAreReportedOnEachRank) {
  Ranks ranks(2, run("different_collectives"));
  expect_error(
      ranks,
      "ranks 0 and 1 of a group are in different collectives, or have tensors of different sizes");
}

TEST(Group, DetailNamesCollectivesThatDiffer) {
  Ranks ranks(2, run("different_collectives"), {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
  expect_error(ranks, "ALLREDUCE");
  EXPECT_TRUE(contains(ranks.errors(), "BROADCAST"));
  EXPECT_TRUE(contains(ranks.errors(), "mismatch"));
}

TEST(Group, TheTrainerRunsWithAllChecks) {
  Ranks ranks(2, trainer({"--max-steps", "2"}), {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
  expect_success(ranks);
}

TEST(Group, AWrongDebugLevelIsNamed) {
  Ranks ranks(2, run("plain"), {{"TORCH_DISTRIBUTED_DEBUG", "LOUD"}});
  expect_error(ranks, "TORCH_DISTRIBUTED_DEBUG");
}

TEST(Group, TheFlightRecorderHoldsTheCollectives) {
  Ranks ranks(2, run("record"), {{"TORCH_FR_BUFFER_SIZE", "100"}});
  expect_success(ranks);
  EXPECT_TRUE(contains(ranks.out(0), "all_reduce"));
}

TEST(Group, TheStoreLetsFourThousandClientsWait) {
  std::ifstream file("/proc/sys/net/core/somaxconn");
  int most = 0;
  file >> most;
  Ranks ranks(2, run("backlog"));
  expect_success(ranks);
  EXPECT_EQ(ranks.out(0), std::to_string(std::min(most, 4096)) + "\n");
}

TEST(Group, AnAgentsStoreServesOneAttemptAfterTheOther) {
  TemporaryFolder folder;
  folder.write("lives", "");
  const int port = free_port();
  Ranks agent({0}, 1, port, run("agent", (folder / "lives").string()));
  // The first attempt leaves half of its keys: rank 1 of 2 does not join.
  Variables variables = {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"},
                         {"TORCHELASTIC_RUN_ID", "run"}};
  Ranks first({0}, 2, port, run("plain"), variables);
  expect_error(first, "rank 1 ");
  Ranks asks({0}, 1, port, run("asks_for_a_dump"));
  expect_success(asks);
  variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  Ranks second({0, 1}, 2, port, run("no_dump_is_asked_for"), variables);
  expect_success(second);
  // Two programs of one worker, the second after the first.
  Ranks next({0, 1}, 2, port, run("plain"), variables);
  expect_error(next,
               "another process is already rank 0 of the run 'run' at 127.0.0.1 port " +
                   std::to_string(port) +
                   "; the agent's store keeps an earlier program's too: set TORCHELASTIC_RUN_ID");
  variables["TORCHELASTIC_RUN_ID"] = "next";
  Ranks with_id({0, 1}, 2, port, run("plain"), variables);
  expect_success(with_id);
  std::filesystem::remove(folder / "lives");
  expect_success(agent);
}

TEST(Group, AMissingAgentIsNamed) {
  Ranks ranks(2, run("plain"), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  expect_one_line(ranks, "TORCHELASTIC_USE_AGENT_STORE=True means that an agent serves the store");
}

TEST(Group, MissingRanksAreNamedWithTheirNode) {
  const int port = free_port();
  // Rank 3 is between the ranks of its node; 4 and 5 would be on a node from which no rank joined.
  const std::string command =
      "LOCAL_RANK=$((RANK%2)) GROUP_RANK=$((RANK/2)) LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=3 "
      "exec " +
      in_build("bin/group_cases") + " plain";
  Ranks ranks({0, 1, 2}, 6, port, {"/bin/sh", "-c", command});
  expect_one_line(ranks, "ranks 3,4,5 (" + torchbridge::host_name() +
                             ") of 6 did not join at 127.0.0.1 port " + std::to_string(port) +
                             " within 2 s");
}

}  // namespace
