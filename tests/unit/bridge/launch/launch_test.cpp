// RANK and the related variables against the launchers' variables, and launches that need no exchange.
#include "bridge/launch/launch.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

EnvMap with(EnvMap environment, const EnvMap& more) {
  for (const auto& [name, value] : more) environment.set(name, value);
  return environment;
}

EnvMap exported(const char* rank, const char* world_size) {
  return {{"RANK", rank}, {"WORLD_SIZE", world_size}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
}

const EnvMap kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_NAMESPACE", "77"}};
const EnvMap kHydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "1"}};
const EnvMap kStep = {{"SLURM_JOB_ID", "5"},         {"SLURM_STEP_ID", "0"},     {"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_PROCID", "1"},         {"SLURM_NODEID", "0"},      {"SLURM_LOCALID", "1"},
                      {"SLURM_STEP_NODELIST", "n0"}, {"SLURM_GTIDS", "0,1,2,3"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}};

TEST(ResolveLaunch, UsesTheEnvironmentUnlessItContradictsTheLauncher) {
  const struct {
    const char* what;
    EnvMap environment;
    const char* error;  // empty where the environment is used
  } kCases[] = {
      {"by hand", exported("1", "4"), ""},
      {"equal to mpirun's", with(kMpirun, exported("1", "4")), ""},
      {"stale under mpirun", with(kMpirun, exported("0", "1")),
       "RANK='0' and WORLD_SIZE='1' are exported, but mpirun started rank 1 of 4: unset RANK and WORLD_SIZE, or the "
       "variables of mpirun if they are stale"},
      {"stale under MPICH", with(kHydra, exported("0", "1")),
       "RANK='0' and WORLD_SIZE='1' are exported, but mpirun started rank 1 of 4: unset RANK and WORLD_SIZE, or the "
       "variables of mpirun if they are stale"},
      {"one RANK for all", with(kMpirun, exported("0", "4")),
       "RANK='0' and WORLD_SIZE='4' are exported, but mpirun started rank 1 of 4: unset RANK and WORLD_SIZE, or the "
       "variables of mpirun if they are stale"},
      {"renumbered by exec", with(with(kMpirun, exported("2", "4")), {{"TORCHELASTIC_RUN_ID", "openmpi-77"}}), ""},
      {"renumbered by exec around another mpirun",
       with(with(kMpirun, exported("2", "4")), {{"TORCHELASTIC_RUN_ID", "openmpi-76"}}),
       "RANK='2' and WORLD_SIZE='4' are exported, but mpirun started rank 1 of 4: unset RANK and WORLD_SIZE, or the "
       "variables of mpirun if they are stale"},
      {"a torchrun agent on each rank",
       with(with(kMpirun, exported("5", "8")), {{"TORCHELASTIC_RUN_ID", "x"},
                                                {"GROUP_WORLD_SIZE", "4"},
                                                {"GROUP_RANK", "2"},
                                                {"LOCAL_RANK", "1"},
                                                {"LOCAL_WORLD_SIZE", "2"}}),
       ""},
      {"stale in a step", with(kStep, exported("0", "1")),
       "RANK='0' and WORLD_SIZE='1' are exported, but slurm started rank 1 of 4: unset RANK and WORLD_SIZE, or the "
       "variables of slurm if they are stale"},
      {"the plugin's own numbering", with(with(kStep, exported("3", "4")), {{"TORCHELASTIC_RUN_ID", "slurm-5.0"}}), ""},
      {"a torchrun of its own in each task", with(with(kStep, exported("0", "2")), {{"TORCHELASTIC_RUN_ID", "none"}}),
       ""},
  };
  for (const auto& test : kCases) {
    const auto launch = resolve_launch(test.environment);
    if (test.error[0] == '\0') {
      ASSERT_TRUE(launch) << test.what << ": " << launch.error().message;
      EXPECT_EQ(launch->launcher, "environment") << test.what;
      EXPECT_FALSE(launch->plan) << test.what;
    } else {
      ASSERT_FALSE(launch) << test.what;
      EXPECT_EQ(launch.error().message, test.error) << test.what;
      EXPECT_EQ(presumed_rank(test.environment), 1) << test.what << ": the launcher's rank";
    }
  }
}

TEST(ResolveLaunch, APlainProcessIsAWorldOfOneWithAPort) {
  const auto launch = resolve_launch({{"HOME", "/"}});
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
  const auto first = resolve_launch(EnvMap{}, settings), second = resolve_launch(EnvMap{}, settings);
  for (const auto* launch : {&first, &second}) {
    ASSERT_TRUE(*launch) << launch->error().message;
    EXPECT_GE((*launch)->env.master.port, 23456);
    EXPECT_LE((*launch)->env.master.port, 23460);
  }
  EXPECT_NE(first->env.master.port, second->env.master.port);
}

TEST(ResolveLaunch, AReservedSocketStaysOpenOverExecAndDoesNotListen) {
  LaunchSettings settings;
  settings.store_socket = StoreSocket::kReserved;
  const auto launch = resolve_launch(EnvMap{}, settings);
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_TRUE(listen_on({"0.0.0.0", launch->env.master.port}));  // as a program that gets the number
}

TEST(ResolveLaunch, RanksWithoutAnExchangeGetAnErrorWithRemedy) {
  const EnvMap flux = {
      {"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_TASK_LOCAL_ID", "1"}, {"FLUX_JOB_NNODES", "2"}};
  const auto launch = resolve_launch(flux);
  ASSERT_FALSE(launch);
  EXPECT_NE(launch.error().message.find("flux: the 4 ranks cannot exchange their nodes"), std::string::npos);
}

TEST(ResolveLaunch, OneNodeWithAGivenAddressNeedsNoExchange) {
  const auto launch = resolve_launch(with(kMpirun, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}}));
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_EQ(launch->env.layout.rank, 1);
  EXPECT_EQ(launch->env.master, (Endpoint{"h", 29500}));
  EXPECT_FALSE(launch->store_socket.open());
}

}  // namespace
}  // namespace torchbridge
