#include "bridge/core/nested_launch.h"

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

EnvMap set_by_us(const std::string& run_id) {
  return {{"RANK", "0"},
          {"WORLD_SIZE", "1"},
          {"MASTER_ADDR", "n0"},
          {"PET_NNODES", "1"},
          {"TORCHELASTIC_RUN_ID", run_id},
          {"TORCHELASTIC_ERROR_FILE", "/tmp/torch-env-0/" + run_id + "-attempt_0-rank_0-error.json"},
          {"HOME", "/root"}};
}

TEST(OuterRun, OfAnotherLaunchIsRemoved) {
  const EnvMap outer = set_by_us("slurm-7.0");
  for (const LaunchFacts& inner :
       {launch("slurm", "7", "1"), launch("slurm", "8", "0"), launch("openmpi", "", ""), launch("hydra", "x", "")}) {
    const EnvMap rest = without_outer_run(outer, inner);
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NNODES", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}) {
      EXPECT_FALSE(rest.has(name)) << name;
    }
    EXPECT_EQ(rest.get("HOME"), "/root");
  }
}

TEST(OuterRun, OfThisLaunchOrOfOthersStays) {
  EXPECT_TRUE(without_outer_run(set_by_us("slurm-7.1"), launch("slurm", "7", "1")).has("RANK"));
  EnvMap by_torchrun = set_by_us("slurm-7.0");
  by_torchrun.set("TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_x/slurm-7.0_y/attempt_0/0/error.json");
  EXPECT_TRUE(without_outer_run(by_torchrun, launch("slurm", "7", "1")).has("RANK"));
  EXPECT_TRUE(
      without_outer_run({{"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "slurm-mine"}}, launch("slurm", "7", "1")).has("RANK"));
  EXPECT_TRUE(without_outer_run({{"RANK", "0"}}, launch("slurm", "7", "1")).has("RANK"));
}

}  // namespace
}  // namespace torchbridge
