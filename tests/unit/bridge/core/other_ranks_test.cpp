#include "bridge/core/other_ranks.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const std::vector<std::string> kShell = {"bash", "sshd", "systemd"};

std::string sign(const EnvMap& environment, const std::vector<std::string>& ancestors = kShell,
                 Alone alone = Alone::kRank) {
  const auto found = sign_of_other_ranks(environment, ancestors, alone);
  return found ? *found : "error: " + found.error().message;
}

TEST(SignOfOtherRanks, IsNotSeenWhereOneProcessIsAll) {
  EXPECT_EQ(sign({{"HOME", "/root"}}), "");
  EXPECT_EQ(sign({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(sign({{"SLURM_JOB_ID", "12"},
                  {"SLURM_PROCID", "0"},
                  {"SLURM_NTASKS", "1"},
                  {"SLURM_JOB_NUM_NODES", "1"}},
                 {"slurm_script", "slurmstepd"}),
            "");
}

// salloc of several components sets no SLURM_JOB_NUM_NODES.
TEST(SignOfOtherRanks, IsAJobOfSeveralComponents) {
  EXPECT_NE(sign({{"SLURM_JOB_ID", "12"}, {"SLURM_HET_SIZE", "2"}}, {"salloc"})
                .find("job 12 of Slurm has 2 components: start it with srun"),
            std::string::npos);
}

TEST(SignOfOtherRanks, IsAnErrorWhereAVariableOfAnUnknownLauncherGivesOtherRanks) {
  const std::string rest =
      ", but no launcher is recognised, and it would be the only rank: set RANK, WORLD_SIZE, "
      "MASTER_ADDR and "
      "MASTER_PORT for every rank, or unset ";
  EXPECT_EQ(sign({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "4"}}),
            "error: this process is MV2_COMM_WORLD_RANK='0' of MV2_COMM_WORLD_SIZE='4'" + rest +
                "MV2_COMM_WORLD_RANK for a program of one rank");
  EXPECT_EQ(sign({{"PMIX_RANK", "3"}}),
            "error: this process is PMIX_RANK='3'" + rest + "PMIX_RANK for a program of one rank");
  for (const char* name : {"ALPS_APP_PE", "PMI_RANK", "MPI_LOCALRANKID", "SLURM_PROCID",
                           "HOROVOD_RANK", "LOCAL_RANK", "PMI_ID", "PMI_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_RANK", "MP_CHILD", "PBS_VNODENUM"})
    EXPECT_TRUE(sign({{name, "1"}})
                    .starts_with("error: this process is " + std::string(name) + "='1', but "))
        << name;
  // From 1, which a job's script has too.
  for (const char* name : {"LSF_PM_TASKID", "PBS_TASKNUM"}) {
    EXPECT_EQ(sign({{name, "1"}}), "") << name;
    EXPECT_TRUE(sign({{name, "2"}})
                    .starts_with("error: this process is " + std::string(name) + "='2', but "))
        << name;
  }
  EXPECT_NE(sign({{"PMI_RANK", "1"}}, kShell, Alone::kAgent)
                .find(": give --nnodes and --rdzv-endpoint, or "
                      "--standalone for separate runs, or unset PMI_RANK"),
            std::string::npos);
}

TEST(SignOfOtherRanks, IsAJobOfSlurmThatHasMoreTasksOrNodes) {
  const EnvMap batch = {{"SLURM_JOB_ID", "12"},
                        {"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_JOB_NUM_NODES", "2"}};
  EXPECT_EQ(sign(batch),
            "this process is the only rank, but job 12 of Slurm has 4 tasks on 2 nodes: start it "
            "with srun");
  EXPECT_EQ(sign({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NUM_NODES", "1"}}),
            "this process is the only rank, but job 12 of Slurm has 4 tasks: start it with srun");
  EXPECT_EQ(
      sign(batch, kShell, Alone::kAgent),
      "this agent is the only one of its run, but job 12 of Slurm has 2 nodes: start it with srun");
  EXPECT_EQ(sign({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NUM_NODES", "1"}},
                 kShell, Alone::kAgent),
            "");
  // A heterogeneous job: these variables are those of its first component.
  EXPECT_EQ(
      sign({{"SLURM_JOB_ID", "12"},
            {"SLURM_HET_SIZE", "2"},
            {"SLURM_NTASKS", "1"},
            {"SLURM_JOB_NUM_NODES", "1"}}),
      "this process is the only rank, but job 12 of Slurm has 2 components: start it with srun");
}

TEST(SignOfOtherRanks, IsAnIndexedJobOfKubernetes) {
  EXPECT_EQ(sign({{"JOB_COMPLETION_INDEX", "0"}}), "");
  EXPECT_EQ(sign({{"JOB_COMPLETION_INDEX", "3"}}),
            "this process is the only rank, but JOB_COMPLETION_INDEX='3' is of an indexed job of "
            "Kubernetes: for one run "
            "of all pods set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every rank");
}

TEST(SignOfOtherRanks, IsAProcessOfALauncherAboveACleanedEnvironment) {
  const std::string rest =
      " is set: pass them on (env -i and --cleanenv of containers remove them), or set RANK, "
      "WORLD_SIZE, MASTER_ADDR "
      "and MASTER_PORT for every rank";
  EXPECT_EQ(
      sign({}, {"sh", "slurmstepd", "systemd"}),
      "this process is the only rank, but slurmstepd is above it, and no variable of slurm" + rest);
  // What a script or a container passes on of the job.
  EXPECT_EQ(
      sign({{"SLURM_JOB_ID", "12"}}, {"slurmstepd"}),
      "this process is the only rank, but slurmstepd is above it, and no variable of slurm" + rest);
  EXPECT_EQ(
      sign({{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NUM_NODES", "1"}}, {"mpirun", "slurmstepd"}),
      "this process is the only rank, but mpirun is above it, and no variable of openmpi" + rest);
  EXPECT_EQ(
      sign({{"PATH", "/bin"}}, {"hydra_pmi_proxy", "mpiexec.hydra"}),
      "this process is the only rank, but hydra_pmi_proxy is above it, and no variable of hydra" +
          rest);
  EXPECT_EQ(
      sign({}, {"orted"}),
      "this process is the only rank, but orted is above it, and no variable of openmpi" + rest);
}

}  // namespace
}  // namespace torchbridge
