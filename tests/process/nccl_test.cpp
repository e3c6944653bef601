// libtorch's own ProcessGroupNCCL, with its watchdog and its flight recorder, over a CUDA and an
// NCCL of the tests (tests/programs/fake_gpu.cpp): what its errors make of a job.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "bridge/net/address.h"
#include "tests/support/paths.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizer.h"

namespace {

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "a sanitizer wants to be the first library";
  }
  // `what`: happens in which all-reduce, as "stuck 21".
  Ranks run(int world_size, const std::string& name, const std::string& what,
            const Variables& more = {}) {
    return run(world_size, std::vector<std::string>{in_build("bin/gpu_cases"), name, "cuda"}, what,
               more);
  }
  Ranks run(int world_size, const std::vector<std::string>& command, const std::string& what,
            const Variables& more = {}) {
    Variables variables = {{"LD_PRELOAD", in_build("tests/programs/libfake_gpu.so")},
                           {"LD_LIBRARY_PATH", in_build("tests/programs/fake_driver")},
                           {"FAKE_GPU", what},
                           {"TORCH_FR_DUMP_TEMP_FILE", (folder_ / "record-").string()}};
    variables.insert(more.begin(), more.end());
    return {world_size, command, variables};
  }
  // What libtorch's torchfrtrace reads, a pickle; empty where the rank wrote none.
  std::string take_record(int rank) const {
    const auto path = folder_ / ("record-" + std::to_string(rank));
    std::ifstream file(path, std::ios::binary);
    std::filesystem::remove(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
};

// The command of a case in which FAKE_GPU is for this rank alone, and TORCHBRIDGE_FAIL, by the
// variable FAIL_OTHERS, for the others.
std::vector<std::string> of_rank(int rank, const std::string& name) {
  return {"/bin/sh", "-c",
          "if [ $RANK != " + std::to_string(rank) +
              " ]; then unset FAKE_GPU; ${FAIL_OTHERS:+export TORCHBRIDGE_FAIL=$FAIL_OTHERS}; fi; "
              "exec " +
              in_build("bin/gpu_cases") + " " + name + " cuda"};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The lines of our program, without those of libtorch's watchdog.
std::vector<std::string> own_lines(const std::string& errors) {
  std::vector<std::string> found;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("gpu_cases: ")) found.push_back(line);
  }
  return found;
}

// The exit codes of the ranks, and the line of one of them.
void expect_codes_and_line(Ranks& ranks, const std::vector<int>& codes,
                           const std::string& expected) {
  EXPECT_EQ(ranks.wait(), codes) << ranks.errors();
  const std::vector<std::string> lines = own_lines(ranks.errors());
  ASSERT_EQ(lines.size(), 1U) << ranks.errors();
  EXPECT_TRUE(contains(lines[0], expected)) << ranks.errors();
}

// Of a group that is bound to its GPU.
void expect_one_own_line(Ranks& ranks, int world_size, const std::string& expected) {
  expect_codes_and_line(ranks, std::vector<int>(static_cast<std::size_t>(world_size), 1), expected);
  const std::vector<std::string> lines = own_lines(ranks.errors());
  if (lines.empty()) return;
  // Where ranks do not reach each other; NCCL's, for gloo's is of no interest.
  EXPECT_EQ(contains(lines[0], "used the interface lo"),
            contains(lines[0], " in time: ") || contains(lines[0], "did not connect the ranks"))
      << ranks.errors();
}

std::string late_line(int rank) {
  return "rank " + std::to_string(rank) + " on " + torchbridge::host_name() +
         " did not take part in a collective in time";
}

TEST_F(Nccl, TheFlightRecordHasItsCollectives) {
  for (const int world_size : {1, 2}) {
    Ranks ranks = run(world_size, "eager", "");
    expect_success(ranks);
    EXPECT_TRUE(contains(ranks.out(0), "recorded 1\n")) << ranks.out(0);
  }
}

TEST_F(Nccl, AGroupWithoutADeviceIsConnectedByItsFirstCollective) {
  for (const int world_size : {1, 2}) {
    Ranks ranks = run(world_size, "lazy", "");
    expect_success(ranks);
    EXPECT_TRUE(contains(ranks.out(0), "backend nccl\n")) << ranks.out(0);
  }
}

// Each rank addresses its GPU by a number, and the current device is another one. NCCL's barrier
// takes the GPU that the group has used, and would guess one by the rank before.
TEST_F(Nccl, AGroupWithoutADeviceConnectsNoGpuThatTheProgramDoesNotUse) {
  for (const char* name : {"scope-first", "used"}) {
    Ranks ranks = run(2, name, "", {{"FAKE_GPUS", "3"}});
    expect_success(ranks);
    EXPECT_TRUE(contains(ranks.errors(), "rank 0 connects GPU 1")) << ranks.errors();
    EXPECT_TRUE(contains(ranks.errors(), "rank 1 connects GPU 2")) << ranks.errors();
    EXPECT_FALSE(contains(ranks.errors(), "rank 0 connects GPU 0")) << name << ranks.errors();
    EXPECT_FALSE(contains(ranks.errors(), "rank 1 connects GPU 0")) << name << ranks.errors();
  }
}

// Only a thread of ours that asks for errors may keep the watchdog from ending the process.
TEST_F(Nccl, TheWatchdogThrowsAsInPythonWhereNoHeartbeatAsksForErrors) {
  struct Case {
    int world_size;
    const char* name;
    Variables variables;
    const char* found;
  };
  const std::vector<Case> cases = {{1, "eager", {}, "unset"},
                                   {2, "unwatched", {}, "unset"},
                                   {2, "eager", {}, "1"},  // once the group's watchdog is made
                                   {2, "eager", {{"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"}}, "0"}};
  for (const Case& one : cases) {
    Ranks ranks = run(one.world_size, one.name, "", one.variables);
    expect_success(ranks);
    EXPECT_TRUE(contains(ranks.out(0), std::string("rethrow ") + one.found + "\n"))
        << one.world_size << ' ' << one.name << ": " << ranks.out(0);
  }
}

// The last of the ranks does not come to the all-reduce: its record shows that. It is written
// before the abort, which may hang.
TEST_F(Nccl, ATimeoutIsOneLineAndARecordOfEachRank) {
  constexpr int kRanks = 3;
  std::vector<std::string> ways = {"stuck 21"};
  if (std::getenv("TORCHBRIDGE_COMPLETE")) ways.emplace_back("hangs 21");
  for (const std::string& how : ways) {
    Ranks ranks = run(kRanks, "late", how);
    expect_one_own_line(ranks, kRanks, late_line(2));
    for (int rank = 0; rank < kRanks; ++rank)
      EXPECT_TRUE(contains(take_record(rank), "nccl:all_reduce")) << how << ", rank " << rank;
  }
}

// No work is queued then, so libtorch's watchdog sees none that times out.
TEST_F(Nccl, ATimeoutWhereACollectiveConnectsIsOneLine) {
  Ranks ranks = run(3, "late", "blocks 21");
  expect_one_own_line(ranks, 3, late_line(2));
}

// Its communicator is formed there, which no abort wakes.
TEST_F(Nccl, ATimeoutOfTheFirstCollectiveOfAGroupWithoutADeviceIsOneLine) {
  Ranks ranks = run(3, "first", "");
  expect_codes_and_line(ranks, {1, 1, 1}, late_line(2));
}

TEST_F(Nccl, AnErrorOfTheNetworkIsOneLineAndARecordOfEachRank) {
  constexpr int kRanks = 2;
  Ranks ranks = run(kRanks, "late", "network 15");
  expect_one_own_line(ranks, kRanks, "the backend's connections between the ranks failed");
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_TRUE(contains(take_record(rank), "nccl:all_reduce")) << "of rank " << rank;
}

// libtorch's watchdog may end seconds later, and with it the group: an agent ends the ranks before.
TEST_F(Nccl, AnErrorOfTheNetworkIsOneLineUnderAnAgentToo) {
  const std::string command = "[ $RANK != 0 ] || FAKE_GPU='stuck 15'; LD_PRELOAD=" +
                              in_build("tests/programs/libfake_gpu.so") + " exec " +
                              in_build("bin/gpu_cases") + " late cuda";
  Process agent({in_build("bin/torchbridge"), "run", "--nproc-per-node", "3", "sh", "-c", command},
                {{"FAKE_GPU", "network 15"},
                 {"LD_LIBRARY_PATH", in_build("tests/programs/fake_driver")},
                 {"TORCH_FR_DUMP_TEMP_FILE", (folder_ / "record-").string()}},
                folder_ / "agent");
  EXPECT_EQ(agent.wait(std::chrono::seconds(60)), 1) << agent.error();
  const std::vector<std::string> lines = own_lines(agent.error());
  ASSERT_EQ(lines.size(), 1U) << agent.error();
  EXPECT_TRUE(contains(lines[0], "the backend's connections between the ranks failed")) << lines[0];
}

// The abort of NCCL waits for the other ranks of the node, which learn of it before.
TEST_F(Nccl, ARankThatFailsIsReportedWithoutAWatchdog) {
  constexpr int kRanks = 3;
  Ranks ranks = run(kRanks, "abort", "stuck 21");
  expect_one_own_line(ranks, kRanks, "gpu_cases: rank 2: failed on purpose");
  for (std::size_t rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(ranks.out(rank), "returned 1\n") << "rank " << rank << ": " << ranks.errors();
}

// The watchdog ends by it, and every destructor that asks the device throws.
TEST_F(Nccl, AnErrorOfTheDeviceIsOneLine) {
  Ranks ranks = run(2, "late", "broken 15");
  expect_one_own_line(ranks, 2, "CUDA error: device-side assert triggered");
}

// libtorch's monitor, which is off here, ends the process by SIGABRT a little later.
TEST_F(Nccl, AWatchdogThatHangsIsOneLineWithinItsTimeout) {
  Ranks ranks =
      run(2, "late", "stalls 15",
          {{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "4"}, {"TORCH_NCCL_ENABLE_MONITORING", "0"}});
  expect_one_own_line(ranks, 2, "the backend's connections between the ranks failed");
}

// The memory of rank 1, which hooks have used on streams of their own, cannot be released then.
TEST_F(Nccl, AnErrorOfTheDeviceOfOneRankIsOneLineWhateverItsMemoryWasUsedFor) {
  Ranks ranks = run(2, of_rank(1, "assert"), "broken 2");
  expect_one_own_line(ranks, 2, "gpu_cases: rank 1: CUDA error: device-side assert triggered");
}

// NCCL's barrier has no time of its own, and the abort is watched.
TEST_F(Nccl, ARankThatDoesNotComeToTheEndIsOneLineThoughTheAbortHangs) {
  Ranks ranks = run(2, "end", "hangs 2");
  expect_codes_and_line(ranks, {1, 1}, late_line(1));
}

// They take longer than a rank may come late to the end: on both ranks, or on one.
TEST_F(Nccl, CollectivesThatTheGpuHasStillToDoAreNotAbortedAtTheEndOfAGroup) {
  Ranks subgroup = run(2, "scope-amid", "slow 1"), all = run(2, of_rank(0, "end-amid"), "slow 1"),
        nccl = run(2, of_rank(0, "end-nccl-amid"), "slow 1");
  for (Ranks* ranks : {&subgroup, &all, &nccl}) {
    expect_success(*ranks);
    EXPECT_FALSE(contains(ranks->errors(), "aborted an all-reduce")) << ranks->errors();
  }
}

// The GPU of rank 0 waits for it too.
TEST_F(Nccl, ARankThatIsKilledAtTheEndIsNamedWhereNoHeartbeatIs) {
  // Before the ranks meet, and while they wait for their GPUs.
  for (const std::string phase : {"exit", "gpu"}) {
    Ranks ranks = run(2, of_rank(0, "end-unwatched"), "stuck 1", {{"FAIL_OTHERS", phase + ":1"}});
    EXPECT_EQ(ranks.wait(), (std::vector<int>{1, 128 + SIGKILL})) << ranks.errors();
    EXPECT_TRUE(contains(ranks.errors(),
                         "the connection to rank 1 on " + torchbridge::host_name() + " was lost"))
        << phase << ": " << ranks.errors();
  }
}

// NCCL's end of one waits for the other rank.
TEST_F(Nccl, SubgroupsMayBeLeftInDifferentOrders) {
  Ranks ranks = run(2, "order", "");
  expect_success(ranks);
}

TEST_F(Nccl, ARankThatIsLateForTheNextSubgroupIsNamed) {
  Ranks ranks = run(3, "late-subgroup", "");
  expect_one_own_line(ranks, 3, late_line(2));
}

// Nor do those of the other ranks of the node, which wait for it.
TEST_F(Nccl, ACommunicatorThatDoesNotEndIsOneLine) {
  if (!std::getenv("TORCHBRIDGE_COMPLETE")) GTEST_SKIP() << "TORCHBRIDGE_COMPLETE=1 runs it";
  for (const int rank : {0, 1}) {
    Ranks ranks = run(2, of_rank(rank, "eager"), "destroy");
    expect_codes_and_line(ranks, {1, 1}, ": the backend did not end its connections within 30 s");
  }
}

// The watchdog, which may see it first, is told to leave it to the thread that trains.
TEST_F(Nccl, AnErrorOfTheDeviceIsOneLineThoughATensorOutlivesTheGroup) {
  for (const int world_size : {1, 2}) {
    Ranks ranks = run(world_size, "kept", "broken 1", {{"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"}});
    expect_one_own_line(ranks, world_size, "CUDA error: device-side assert triggered");
  }
}

// The first is NCCL's, the second the watchdog's, which ends the process where no heartbeat is.
const std::vector<std::pair<std::string, std::string>> kOwnErrors = {
    {"fails", "ncclUnhandledCudaError"}, {"seen", "CUDA error: device-side assert triggered"}};

TEST_F(Nccl, AnErrorOfTheOnlyRankIsOneLine) {
  for (const auto& [how, line] : kOwnErrors) {
    Ranks ranks = run(1, "assert", how + " 1");
    expect_one_own_line(ranks, 1, line);
  }
}

TEST_F(Nccl, AnErrorOfTheOnlyRankIsOneLineThoughTheAbortHangs) {
  Ranks ranks = run(1, "assert", "ends 1");
  expect_one_own_line(ranks, 1, "ncclUnhandledCudaError");
}

// The others wait for rank 2 in the same all-reduce, and say nothing to it.
TEST_F(Nccl, AnErrorOfOneRankNamesNoOtherWhereNoHeartbeatIs) {
  constexpr int kRanks = 3;
  const std::string of_rank_2 = "[ $RANK = 2 ] || FAKE_GPU='stuck 15'; exec " +
                                in_build("bin/gpu_cases") + " unwatched-sums cuda";
  for (const auto& [how, line] : kOwnErrors) {
    Ranks ranks = run(kRanks, {"/bin/sh", "-c", of_rank_2}, how + " 15");
    ASSERT_TRUE(eventually([&] { return ranks.ended(2); })) << how;
    for (const std::size_t waiting : {0, 1}) ranks.kill_rank(waiting, SIGKILL);
    EXPECT_EQ(ranks.wait()[2], 1) << ranks.errors();
    const std::vector<std::string> lines = own_lines(ranks.errors());
    ASSERT_EQ(lines.size(), 1U) << ranks.errors();
    EXPECT_TRUE(lines[0].starts_with("gpu_cases: rank 2: ")) << ranks.errors();
    EXPECT_TRUE(contains(lines[0], line)) << ranks.errors();
  }
}

// Its communicator is aborted with the whole group's, which is watched.
TEST_F(Nccl, ARankThatFailsBesideASubgroupIsOneLineThoughTheAbortHangs) {
  Ranks ranks = run(2, "scope", "hangs 5");
  expect_one_own_line(ranks, 2, "failed on purpose");
}

// As where /dev/shm is full. The others wait in ncclCommInitRankConfig(), which nothing ends.
TEST_F(Nccl, ARankThatCannotConnectEndsTheOthersWithOneLine) {
  Ranks ranks = run(3, "late", "init 1");
  expect_one_own_line(ranks, 3, "gpu_cases: rank 1: cannot form the process group at ");
  EXPECT_TRUE(contains(own_lines(ranks.errors())[0], "ncclSystemError")) << ranks.errors();
}

// As behind a firewall, where NCCL tries for more than an hour; the second time for a subgroup,
// which rank 2 is not in.
TEST_F(Nccl, RanksThatDoNotConnectInTimeEndWithOneLine) {
  Ranks all = run(3, "late", "init 9");
  expect_one_own_line(all, 3,
                      "the backend cpu:gloo,cuda:nccl did not connect the ranks within 5 s");
  Ranks subgroup = run(3, "split", "split 9");
  expect_one_own_line(subgroup, 3, " did not connect the ranks within 5 s");
}

// NCCL itself is not asked, and is content with two. From 2.30 on it compares UUIDs.
TEST_F(Nccl, RanksOnOneGpuAreOneLineUnlessTheSiteAllowsIt) {
  Ranks sharing = run(2, "late", "", {{"FAKE_GPU_OF_ALL", "1"}});
  expect_one_own_line(sharing, 2, " too, and NCCL rejects two ranks on one");
  const bool is_old = contains(sharing.errors(), " uses the GPU 0000:00:00.0 on ");
  const std::string uuid = " uses the GPU GPU-00112233-4455-6677-8899-aabbccddee00 on ";
  EXPECT_TRUE(is_old || contains(sharing.errors(), uuid)) << sharing.errors();
  if (is_old) return;
  Ranks allowed =
      run(2, "eager", "", {{"FAKE_GPU_OF_ALL", "1"}, {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}});
  expect_success(allowed);
}

}  // namespace
