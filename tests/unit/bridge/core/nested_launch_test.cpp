#include "bridge/core/nested_launch.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

LaunchFacts launch(const char* launcher, const char* job, const char* step) {
  LaunchFacts facts;
  facts.launcher = launcher;
  facts.job_id = job;
  facts.step_id = step;
  return facts;
}

EnvMap set_by_exec(const char* launch) {
  std::vector<Variable> variables = {{"RANK", "0"},
                                     {"WORLD_SIZE", "1"},
                                     {"MASTER_ADDR", "n0"},
                                     {"PET_NNODES", "1"},
                                     {"TORCHELASTIC_RUN_ID", "a run"},
                                     {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"}};
  const EnvMap user = {{"HOME", "/root"}};
  add_setter({SetBy::kExec, launch}, user, variables);
  return with_variables(user, variables);
}

TEST(Setter, IsReadBackAsItWasWritten) {
  for (const SetBy who : {SetBy::kPlugin, SetBy::kExec, SetBy::kRun}) {
    const Setter setter = setter_of({{kSetByVariable, text_of({who, "slurm-7.0"}, "my run")},
                                     {"TORCHELASTIC_RUN_ID", "my run"}});
    EXPECT_EQ(setter.who, who);
    EXPECT_EQ(setter.launch, "slurm-7.0");
  }
}

// elastic=no
TEST(Setter, IsReadBackWithoutARunId) {
  EnvMap environment = {{kSetByVariable, text_of({SetBy::kPlugin, "slurm-7.0"}, "")}};
  EXPECT_EQ(setter_of(environment).who, SetBy::kPlugin);
  EXPECT_EQ(setter_of(environment).launch, "slurm-7.0");
  environment.set("TORCHELASTIC_RUN_ID", "torchrun's");
  EXPECT_EQ(setter_of(environment).who, SetBy::kTorchrun);
}

TEST(Setter, IsTorchrunWhereTheRunIsAnotherOne) {
  EnvMap environment = set_by_exec("slurm-7.0");
  environment.set("TORCHELASTIC_RUN_ID", "torchrun's");
  EXPECT_EQ(setter_of(environment).who, SetBy::kTorchrun);
  EXPECT_EQ(setter_of(environment).launch, "");
  EXPECT_EQ(setter_of({{"RANK", "0"}}).who, SetBy::kOthers);
}

TEST(OuterRun, OfAnotherLaunchIsRemoved) {
  const EnvMap outer = set_by_exec("slurm-7.0");
  for (const LaunchFacts& inner : {launch("slurm", "7", "1"), launch("slurm", "8", "0"),
                                   launch("openmpi", "", ""), launch("hydra", "x", "")}) {
    const EnvMap rest = without_outer_run(outer, inner);
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NNODES",
                             "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", kSetByVariable}) {
      EXPECT_FALSE(rest.has(name)) << name;
    }
    EXPECT_EQ(rest.get("HOME"), "/root");
  }
}

// What the user exported, or has changed inside, is not the outer launch's.
TEST(OuterRun, IsWhatWasSetAndIsUnchanged) {
  std::vector<Variable> variables = {
      {"RANK", "0"}, {"OMP_NUM_THREADS", "1"}, {"MASTER_PORT", "5"}, {"CUDA_VISIBLE_DEVICES", "1"}};
  const EnvMap user = {{"MASTER_ADDR", "n0"}, {"GLOO_SOCKET_IFNAME", "eth1"}};
  add_setter({SetBy::kPlugin, "slurm-7.0"}, user, variables);
  const EnvMap set = with_variables(user, variables);
  EXPECT_FALSE(is_changed(set, {"RANK", "MASTER_ADDR", "MASTER_PORT"}));
  const EnvMap changed = with_variables(set, {{"MASTER_PORT", "6"}});
  EXPECT_TRUE(is_changed(changed, {"RANK", "MASTER_PORT"}));
  const EnvMap rest = without_outer_run(changed, launch("slurm", "7", "1"));
  const std::map<std::string, std::string> expected = {{"MASTER_ADDR", "n0"},
                                                       {"GLOO_SOCKET_IFNAME", "eth1"},
                                                       {"MASTER_PORT", "6"},
                                                       {"CUDA_VISIBLE_DEVICES", "1"}};
  EXPECT_EQ((std::map<std::string, std::string>(rest.begin(), rest.end())), expected);
  EXPECT_FALSE(
      is_changed(with_variables(set, {{"RANK", "1"}, {kSetByVariable, "run none x"}}), {"RANK"}))
      << "of the agent inside, which sets its workers' variables";
}

TEST(OuterRun, OfThisLaunchOrOfOthersStays) {
  const LaunchFacts inner = launch("slurm", "7", "1");
  EXPECT_TRUE(without_outer_run(set_by_exec("slurm-7.1"), inner).has("RANK"));
  EnvMap by_torchrun = set_by_exec("slurm-7.0");
  by_torchrun.set("TORCHELASTIC_RUN_ID", "torchrun's");
  EXPECT_TRUE(without_outer_run(by_torchrun, inner).has("RANK"));
  EXPECT_TRUE(without_outer_run({{"RANK", "0"}}, inner).has("RANK"));
}

TEST(NoLaunch, LeavesWhatTheUserAndTheJobHave) {
  EnvMap inherited = set_by_exec("slurm-7.0");
  for (const char* name :
       {"SLURM_STEP_ID", "SLURM_STEPID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_NAMESPACE",
        "MPI_LOCALNRANKS", "FLUX_TASK_RANK", "PALS_RANKID", "SLURM_PROCID"})
    inherited.set(name, "1");
  const std::map<std::string, std::string> kept = {
      {"SLURM_JOB_ID", "8"},   {"SLURM_NODEID", "0"},     {"PMIX_MCA_gds", "hash"},
      {"OMPI_MCA_btl", "tcp"}, {"PET_MAX_RESTARTS", "3"}, {"HOME", "/root"}};
  const EnvMap left = without_launch(with_variables(inherited, {kept.begin(), kept.end()}));
  EXPECT_EQ((std::map<std::string, std::string>(left.begin(), left.end())), kept);
  EXPECT_TRUE(without_launch(set_by_exec("none")).has("RANK")) << "of the batch script's own exec";
}

}  // namespace
}  // namespace torchbridge
