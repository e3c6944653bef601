// RANK and the related variables against the launchers' variables, and launches that need no
// exchange.
#include "bridge/launch/launch.h"

#include <fstream>

#include <gtest/gtest.h>

#include "bridge/net/address.h"
#include "temporary_folder.h"
#include "tests/unit/bridge/core/launchers/pals_apinfo.h"

namespace torchbridge {
namespace {

EnvMap with(EnvMap environment, const EnvMap& more) {
  for (const auto& [name, value] : more) environment.set(name, value);
  return environment;
}

EnvMap exported(const char* rank, const char* world_size) {
  return {
      {"RANK", rank}, {"WORLD_SIZE", world_size}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
}

const EnvMap kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_NAMESPACE", "77"}};
const EnvMap kHydra = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "1"}};
const EnvMap kStep = {
    {"SLURM_JOB_ID", "5"},         {"SLURM_STEP_ID", "0"},     {"SLURM_STEP_NUM_TASKS", "4"},
    {"SLURM_PROCID", "1"},         {"SLURM_NODEID", "0"},      {"SLURM_LOCALID", "1"},
    {"SLURM_STEP_NODELIST", "n0"}, {"SLURM_GTIDS", "0,1,2,3"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}};
const EnvMap kOneTask = {{"SLURM_STEP_NUM_TASKS", "1"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_GTIDS", "0"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1"}};

const EnvMap kLocal = {
    {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}, {"GROUP_RANK", "0"}, {"GROUP_WORLD_SIZE", "1"}};

TEST(ResolveLaunch, TakesAnEmptyVariableInAStepForOneThatIsNotSet) {
  const EnvMap empty = {{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_PORT", ""}};
  const auto second = resolve_launch(with(kStep, empty));
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->launcher, "slurm");
  EXPECT_EQ(second->env.layout.rank, 1);
  EXPECT_EQ(second->note, "") << "of rank 0 alone";
}

TEST(ResolveLaunch, UsesTheEnvironmentUnlessItContradictsTheLauncher) {
  const struct {
    const char* what;
    EnvMap environment;
    const char* error;  // empty where the environment is used
  } kLaunches[] = {
      {"by hand", exported("1", "4"), ""},
      {"equal to mpirun's", with(kMpirun, with(exported("1", "4"), kLocal)), ""},
      {"stale under mpirun", with(kMpirun, exported("0", "1")),
       "RANK='0' and WORLD_SIZE='1' are exported, but mpirun started rank 1 of 4: unset RANK and "
       "WORLD_SIZE, or the "
       "variables of mpirun if they are stale; for ranks inside each task: torchbridge "
       "run --standalone"},
      {"stale under MPICH", with(kHydra, exported("0", "1")),
       "RANK='0' and WORLD_SIZE='1' are exported, but mpirun started rank 1 of 4: unset RANK and "
       "WORLD_SIZE, or the "
       "variables of mpirun if they are stale; for ranks inside each task: torchbridge "
       "run --standalone"},
      {"one RANK for all", with(kMpirun, exported("0", "4")),
       "RANK='0' and WORLD_SIZE='4' are exported, but mpirun started rank 1 of 4: unset RANK and "
       "WORLD_SIZE, or the "
       "variables of mpirun if they are stale; for ranks inside each task: torchbridge "
       "run --standalone"},
      {"renumbered by exec",
       with(with(kMpirun, exported("2", "4")), {{"TORCHELASTIC_RUN_ID", "openmpi-77"}}), ""},
      {"renumbered by exec around another mpirun",
       with(with(kMpirun, exported("2", "4")), {{"TORCHELASTIC_RUN_ID", "openmpi-76"}}),
       "RANK='2' and WORLD_SIZE='4' are exported, but mpirun started rank 1 of 4: unset RANK and "
       "WORLD_SIZE, or the "
       "variables of mpirun if they are stale"},
      {"a torchrun agent on each rank",
       with(with(kMpirun, exported("5", "8")), {{"TORCHELASTIC_RUN_ID", "x"},
                                                {"GROUP_WORLD_SIZE", "4"},
                                                {"GROUP_RANK", "2"},
                                                {"LOCAL_RANK", "1"},
                                                {"LOCAL_WORLD_SIZE", "2"}}),
       ""},
      {"stale in a step", with(kStep, exported("0", "1")),
       "RANK='0' and WORLD_SIZE='1' are exported, but slurm started rank 1 of 4: unset RANK and "
       "WORLD_SIZE, or the "
       "variables of slurm if they are stale; for ranks inside each task: torchbridge "
       "run --standalone"},
      {"one of two steps", with(with(kStep, kOneTask), exported("1", "2")),
       "RANK='1' and WORLD_SIZE='2' are exported, but slurm started rank 0 of 1: unset RANK and "
       "WORLD_SIZE, or the variables of slurm if they are stale; to join ranks that slurm starts "
       "one by one, set RANK to MASTER_PORT in a shell that stays above the command: sh -c "
       "'RANK=1 ... COMMAND; exit $?'"},
      {"RANK alone", with(kMpirun, {{"RANK", "0"}}),
       "RANK='0' is exported, but openmpi started rank 1 of 4 ranks: unset it"},
      {"RANK and WORLD_SIZE alone in a step", with(kStep, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
       "WORLD_SIZE='1' is exported, but slurm started 4 ranks: unset it"},
      {"RANK without an address",
       with(kStep, {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "29500"}}),
       "RANK='0' is exported, but slurm started rank 1 of 4 ranks: unset it"},
      {"the plugin's own numbering",
       with(with(kStep, exported("3", "4")), {{"TORCHELASTIC_RUN_ID", "slurm-5.0"}}), ""},
      {"a torchrun of its own in each task",
       with(with(kStep, exported("0", "2")), {{"TORCHELASTIC_RUN_ID", "none"}}), ""},
  };
  for (const auto& test : kLaunches) {
    const auto launch = resolve_launch(test.environment);
    if (test.error[0] == '\0') {
      ASSERT_TRUE(launch) << test.what << ": " << launch.error().message;
      EXPECT_EQ(launch->launcher, "environment") << test.what;
      EXPECT_FALSE(launch->plan) << test.what;
    } else {
      ASSERT_FALSE(launch) << test.what;
      EXPECT_EQ(launch.error().message, test.error) << test.what;
      const auto own = test.environment.get("SLURM_PROCID") == "0" ? 0 : 1;
      EXPECT_EQ(LaunchOrigin(test.environment).rank, own) << test.what << ": the launcher's rank";
    }
  }
}

TEST(ResolveLaunch, TheLaunchersOwnRankWithoutAnAddressIsKept) {
  const EnvMap address = {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
  for (const EnvMap& own : {EnvMap{{"RANK", "1"}}, EnvMap{{"WORLD_SIZE", "4"}}}) {
    const auto launch = resolve_launch(with(with(kMpirun, own), address));
    ASSERT_TRUE(launch) << launch.error().message;
    EXPECT_EQ(launch->launcher, "openmpi");
    EXPECT_EQ(launch->env.layout.rank, 1);
  }
}

// As by enroot's hook for images of PyTorch.
TEST(ResolveLaunch, WhatTheLaunchersOwnRanksLackIsTheLaunchers) {
  const EnvMap two_nodes = {{"SLURM_STEP_NODELIST", "127.0.0.[1-2]"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                            {"SLURM_PROCID", "3"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_GTIDS", "2,3"}};
  const EnvMap own = with(exported("3", "4"), {{"MASTER_ADDR", "192.0.2.1"}});
  for (const EnvMap& more : {EnvMap{}, EnvMap{{"LOCAL_RANK", "1"}},
                             EnvMap{{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}}) {
    const auto launch = resolve_launch(with(with(with(kStep, two_nodes), own), more));
    ASSERT_TRUE(launch) << launch.error().message;
    EXPECT_EQ(launch->env.layout, (Layout{3, 4, 1, 2, 1, 2}));
    EXPECT_EQ(launch->env.master, (Endpoint{"192.0.2.1", 29500}));
  }
}

// The remedy of the error where there is no exchange.
TEST(ResolveLaunch, TheLaunchersOwnRanksNeedNoExchange) {
  const EnvMap flux = {{"FLUX_TASK_RANK", "1"},
                       {"FLUX_JOB_SIZE", "4"},
                       {"FLUX_TASK_LOCAL_ID", "1"},
                       {"FLUX_JOB_NNODES", "2"}};
  const auto launch = resolve_launch(with(flux, exported("1", "4")));
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_EQ(launch->launcher, "environment");
}

TEST(ResolveLaunch, AnAddressWithItsPortIsRejectedAlsoWithOneRank) {
  const EnvMap address = {{"MASTER_ADDR", "h:29500"}, {"MASTER_PORT", "29500"}};
  const EnvMap one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  for (const EnvMap& environment : {with(one, address), with(kMpirun, address)}) {
    const auto launch = resolve_launch(environment);
    ASSERT_FALSE(launch);
    EXPECT_TRUE(launch.error().message.starts_with(
        "MASTER_ADDR='h:29500': expected a host name or an address, without a port"))
        << launch.error().message;
  }
}

TEST(ResolveLaunch, APlainProcessIsAWorldOfOneWithAPort) {
  const auto launch = resolve_launch(EnvMap{{"HOME", "/"}});
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_EQ(launch->launcher, "none");
  EXPECT_EQ(launch->env.layout, Layout{});
  EXPECT_EQ(launch->env.master.host, "127.0.0.1");
  ASSERT_TRUE(launch->store_socket.open());
  const auto port = bound_port(launch->store_socket);
  ASSERT_TRUE(port) << port.error().message;
  EXPECT_EQ(*port, launch->env.master.port);
}

TEST(ResolveLaunch, ThePortRuleIsKept) {
  LaunchSettings settings;
  settings.options.port = {23456, 23460};
  const auto first = resolve_launch(EnvMap{}, settings),
             second = resolve_launch(EnvMap{}, settings);
  for (const auto* launch : {&first, &second}) {
    ASSERT_TRUE(*launch) << launch->error().message;
    EXPECT_GE((*launch)->env.master.port, 23456);
    EXPECT_LE((*launch)->env.master.port, 23460);
  }
  EXPECT_NE(first->env.master.port, second->env.master.port);
}

TEST(ResolveLaunch, TriesNoOtherPortForAnAddressThatIsNotOfThisHost) {
  LaunchSettings settings;
  settings.options.addr = {AddressRule::Kind::kHost, "192.0.2.1"};  // of documentation
  settings.options.port = {1024, 65535};
  settings.store_socket = StoreSocket::kReserved;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(resolve_launch(EnvMap{}, settings));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));  // all take 10 s
}

TEST(ResolveLaunch, ByHandMayHaveOtherNodesWhereSomethingSaysSo) {
  const EnvMap by_hand = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}};
  const struct {
    EnvMap more;
    bool may_have_other_nodes, is_local_size_known;
  } cases[] = {
      {{}, false, false},  // a script's on one host
      {{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}}, true, false},
      {{{"LOCAL_WORLD_SIZE", "1"}}, true, true},
      {{{"LOCAL_WORLD_SIZE", "2"}}, false, true},
      {{{"WORLD_SIZE", "1"}}, false, true},
  };
  for (const auto& [more, may_have_other_nodes, is_local_size_known] : cases) {
    const auto launch = resolve_launch(with(by_hand, more));
    ASSERT_TRUE(launch) << launch.error().message;
    EXPECT_EQ(launch->may_have_other_nodes, may_have_other_nodes)
        << more.get("LOCAL_WORLD_SIZE").value_or("");
    EXPECT_EQ(launch->is_local_size_known, is_local_size_known);
  }
}

TEST(ResolveLaunch, AReservedSocketStaysOpenOverExecAndDoesNotListen) {
  LaunchSettings settings;
  settings.store_socket = StoreSocket::kReserved;
  const auto launch = resolve_launch(EnvMap{}, settings);
  ASSERT_TRUE(launch) << launch.error().message;
  // As a program that gets the number.
  EXPECT_TRUE(listen_on({"0.0.0.0", launch->env.master.port}));
}

// mpiexec --pmi=pmix sets no PMI_SIZE.
TEST(ResolveLaunch, OfPalsWithoutPmiSizeTakesTheNumberOfRanksFromItsFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "apinfo";
  std::ofstream(path) << apinfo({0, 1, 0}, {"x1000", "x1001"});
  const auto facts =
      LaunchOrigin({{"PALS_RANKID", "2"}, {"PALS_NODEID", "0"}, {"PALS_APINFO", path}}).facts;
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->world_size, 3);
  EXPECT_EQ(facts->local_rank, 1);
  EXPECT_EQ(facts->local_size, 2);
}

TEST(ResolveLaunch, OfPalsWithoutANumberOfRanksIsAnErrorWithRemedy) {
  const auto launch = resolve_launch(EnvMap{{"PALS_RANKID", "0"}});
  ASSERT_FALSE(launch);
  EXPECT_TRUE(launch.error().message.starts_with(
      "pals: PALS_RANKID is set, but PMI_SIZE is not, and the file of "
      "PALS_APINFO does not give the number of ranks: start the program "))
      << launch.error().message;
}

// As in a pod, whose host name is not the node's.
TEST(ResolveLaunch, OnTheNodeOfRankZeroItsNameNeedNotResolve) {
  const EnvMap names = {{"SLURM_STEP_NODELIST", "node.invalid"},
                        {"SLURMD_NODENAME", "node.invalid"}};
  const auto launch = resolve_launch(with(kStep, names));
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_TRUE(is_own_address(launch->env.master.host)) << launch->env.master.host;
}

TEST(ResolveLaunch, TheAddressOfANodeOfACloudIsSlurms) {
  const EnvMap two_nodes = {{"SLURM_STEP_NODELIST", "ec[0-1].invalid"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1,3"},
                            {"SLURM_GTIDS", "1,2,3"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURMD_NODENAME", "ec1.invalid"}};
  for (const char* aliases : {"ec0.invalid:10.1.0.5:ip-10-1-0-5,ec1.invalid:10.1.0.6:ip-10-1-0-6",
                              "ec1.invalid:[10.1.0.6]:x,ec0.invalid:[10.1.0.5]:y"}) {
    const auto launch =
        resolve_launch(with(with(kStep, two_nodes), {{"SLURM_NODE_ALIASES", aliases}}));
    ASSERT_TRUE(launch) << launch.error().message;
    EXPECT_EQ(launch->env.master.host, "10.1.0.5") << aliases;
  }
  const auto none =
      resolve_launch(with(with(kStep, two_nodes), {{"SLURM_NODE_ALIASES", "(null)"}}));
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().message.ends_with(
      ": give that node's, as in --torch-env=addr=10.1.0.5 or MASTER_ADDR=10.1.0.5"))
      << none.error().message;
}

TEST(ResolveLaunch, RanksWithoutAnExchangeGetAnErrorWithRemedy) {
  const EnvMap flux = {{"FLUX_TASK_RANK", "1"},
                       {"FLUX_JOB_SIZE", "4"},
                       {"FLUX_TASK_LOCAL_ID", "1"},
                       {"FLUX_JOB_NNODES", "2"}};
  const auto launch = resolve_launch(flux);
  ASSERT_FALSE(launch);
  EXPECT_NE(launch.error().message.find("flux: the 4 ranks cannot exchange their nodes"),
            std::string::npos);
}

TEST(ResolveLaunch, OneNodeWithAGivenAddressNeedsNoExchange) {
  const auto launch =
      resolve_launch(with(kMpirun, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}}));
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_EQ(launch->env.layout.rank, 1);
  EXPECT_EQ(launch->env.master, (Endpoint{"h", 29500}));
  EXPECT_FALSE(launch->store_socket.open());
}

}  // namespace
}  // namespace torchbridge
