#include "bridge/launch/launch_origin.h"

#include <unistd.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

const EnvMap kTask = {
    {"SLURM_JOB_ID", "5"},         {"SLURM_STEP_ID", "0"},     {"SLURM_STEP_NUM_TASKS", "4"},
    {"SLURM_PROCID", "1"},         {"SLURM_NODEID", "0"},      {"SLURM_LOCALID", "1"},
    {"SLURM_STEP_NODELIST", "n0"}, {"SLURM_GTIDS", "0,1,2,3"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}};

// The step's task 1, with RANK 7 of 8.
LaunchOrigin with_rank(const std::vector<Variable>& more) {
  return LaunchOrigin(with_variables(with_variables(kTask, {{"RANK", "7"},
                                                            {"WORLD_SIZE", "8"},
                                                            {"MASTER_ADDR", "n0"},
                                                            {"MASTER_PORT", "29500"},
                                                            {"TORCHELASTIC_RUN_ID", "a run"}}),
                                     more),
                      {});
}

TEST(LaunchOrigin, KeepsARankThatWasSetForThisLaunch) {
  for (const SetBy who : {SetBy::kPlugin, SetBy::kExec, SetBy::kRun}) {
    const LaunchOrigin origin = with_rank({{kSetByVariable, text_of({who, "slurm-5.0"}, "a run")}});
    EXPECT_EQ(origin.set_by, who);
    EXPECT_TRUE(origin.given);
    EXPECT_EQ(origin.rank, 7);
    EXPECT_EQ(origin.launch(), "slurm-5.0");
  }
}

TEST(LaunchOrigin, LeavesOutARankThatWasSetAroundTheLauncher) {
  for (const char* launch : {"none", "slurm-4.0", "openmpi-77"}) {
    const LaunchOrigin origin =
        with_rank({{kSetByVariable, text_of({SetBy::kRun, launch}, "a run")}});
    EXPECT_FALSE(origin.environment.has("RANK")) << launch;
    EXPECT_FALSE(origin.given) << launch;
    EXPECT_EQ(origin.rank, 1) << launch;
  }
}

// A task that is the only one, and a process below it with RANK 1 of 2. This process stands for the
// task: it was started without RANK.
TEST(LaunchOrigin, BelievesARankThatWasSetInsideTheOnlyTask) {
  const EnvMap ranks = with_variables(kTask, {{"SLURM_STEP_NUM_TASKS", "1"},
                                              {"SLURM_PROCID", "0"},
                                              {"SLURM_LOCALID", "0"},
                                              {"SLURM_GTIDS", "0"},
                                              {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                              {"RANK", "1"},
                                              {"WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "n0"},
                                              {"MASTER_PORT", "29500"}});
  const ProcessEntry rank{1 << 29, "trainer"}, task{getpid(), "bash"}, slurm{1, "slurmstepd"};
  const LaunchOrigin inside(ranks, {rank, task, slurm});
  ASSERT_TRUE(inside.given) << inside.given.error().message;
  EXPECT_EQ(inside.given->layout.rank, 1);
  EXPECT_FALSE(LaunchOrigin(ranks, {task, slurm}).given) << "the task itself";
  EXPECT_FALSE(LaunchOrigin(ranks, {rank, task}).given) << "no launcher is seen";
  const EnvMap several = with_variables(ranks, {{"SLURM_STEP_NUM_TASKS", "4"},
                                                {"SLURM_GTIDS", "0,1,2,3"},
                                                {"SLURM_STEP_TASKS_PER_NODE", "4"}});
  EXPECT_FALSE(LaunchOrigin(several, {rank, task, slurm}).given);
}

// Of the plugin's or exec's variables for the only task nothing but the endpoint is left beside
// them.
TEST(LaunchOrigin, BelievesRanksThatAreSetInsideTheOnlyTaskOfThePlugin) {
  EnvMap task = with_variables(kTask, {{"SLURM_STEP_NUM_TASKS", "1"},
                                       {"SLURM_PROCID", "0"},
                                       {"SLURM_LOCALID", "0"},
                                       {"SLURM_GTIDS", "0"},
                                       {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  std::vector<Variable> set = {{"RANK", "0"},           {"WORLD_SIZE", "1"},
                               {"LOCAL_RANK", "0"},     {"LOCAL_WORLD_SIZE", "1"},
                               {"GROUP_RANK", "0"},     {"GROUP_WORLD_SIZE", "1"},
                               {"MASTER_PORT", "5"},    {"MASTER_ADDR", "192.0.2.1"},
                               {"OMP_NUM_THREADS", "1"}};
  add_setter({SetBy::kPlugin, "slurm-5.0"}, {}, set);
  task = with_variables(task, set);
  EXPECT_EQ(LaunchOrigin(task, {}).given->layout.local_world_size, 1);
  const auto inside = [&](const std::vector<Variable>& more) {
    return LaunchOrigin(with_variables(task, more), {});
  };
  const LaunchOrigin loop = inside({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "::1"}});
  ASSERT_TRUE(loop.given) << loop.given.error().message;
  EXPECT_EQ(loop.given->layout.local_rank, 1);
  EXPECT_EQ(loop.given->layout.local_world_size, 3);
  EXPECT_TRUE(loop.environment.has("OMP_NUM_THREADS"));
  const LaunchOrigin by_node = inside({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}});
  ASSERT_TRUE(by_node.given) << by_node.given.error().message;
  EXPECT_EQ(by_node.given->layout.local_rank, 0) << "rank 0 may be elsewhere";
  EXPECT_EQ(by_node.given->master.port, 5);
  // Not below the task, as Ray's workers: without launcher, but with the ranks that Ray gives.
  const LaunchOrigin daemon(
      with_variables(task, {{"SLURM_TASK_PID", "77"}, {"MASTER_PORT", "6"}, {"MASTER_ADDR", "n1"}}),
      {{9, "python"}, {1, "systemd"}});
  ASSERT_TRUE(daemon.given) << daemon.given.error().message;
  EXPECT_EQ(daemon.given->master.host, "n1");
  EXPECT_EQ(daemon.launcher == nullptr, has_process_ids_of_host());
}

TEST(LaunchOrigin, TakesTheRunIdOfTheLaunchForThatOfAnOlderPlugin) {
  EXPECT_EQ(with_rank({{"TORCHELASTIC_RUN_ID", "slurm-5.0"}}).set_by, SetBy::kPlugin);
  EXPECT_EQ(with_rank({{"TORCHELASTIC_RUN_ID", "slurm-4.0"}}).set_by, SetBy::kTorchrun);
}

// sbatch and salloc inside a task or a rank pass the variables of that launch on.
TEST(LaunchOrigin, TakesAShellOfAJobForNoTaskOfTheStepAroundIt) {
  const ProcessEntry self{9, "torchbridge"}, shell{8, "bash"}, salloc{7, "salloc"};
  const ProcessEntry own_step{6, "slurmstepd", "5.0"}, other_step{6, "slurmstepd", "4.0"},
      batch{6, "slurmstepd", "5.batch"}, unknown{6, "slurmstepd"};
  struct Origin {
    std::vector<ProcessEntry> processes;
    std::vector<Variable> more;
    const char* launcher;
  };
  const std::vector<Variable> rank = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  const Origin cases[] = {
      {{self, shell, own_step}, {}, "slurm"},
      {{self, shell, {6, "slurmstepd", "5.0+1"}}, {}, "slurm"},
      {{self, shell, {6, "slurmstepd", "of another release"}}, {}, "slurm"},
      {{self, shell, batch}, {}, ""},
      {{self, shell, other_step}, {}, ""},
      {{self, shell, other_step}, {{"SLURM_HET_SIZE", "2"}}, "slurm"},
      {{self, shell, batch}, {{"SLURM_HET_SIZE", "2"}}, ""},
      {{self, shell, salloc, own_step}, {}, ""},
      {{self, shell, unknown}, {}, "slurm"},
      {{self, shell}, {}, "slurm"},
      // What is above is hidden: the variables of a step that are not the job's.
      {{self, shell}, {{"SLURM_JOB_NODELIST", "n[0-1]"}, {"SLURMD_NODENAME", "n0"}}, "slurm"},
      {{self, shell}, {{"SLURM_JOB_NODELIST", "n[0-1]"}, {"SLURMD_NODENAME", "n1"}}, ""},
      {{self, shell}, {{"SLURM_JOB_NODELIST", "n1"}}, ""},
      {{self, shell},
       {{"SLURM_JOB_NODELIST", "n0"},
        {"SLURMD_NODENAME", "n0"},
        {"SLURM_PROCID", "0"},
        {"SLURM_GTIDS", "0"}},
       ""},
      {{self, shell, own_step}, {{"SLURM_JOB_NODELIST", "n1"}}, "slurm"},
      {{self, shell}, {{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_HET_SIZE", "2"}}, "slurm"},
      {{self, shell, batch}, rank, ""},
      {{self, {8, "orted"}, batch}, rank, "openmpi"},
      {{self, {8, "mpirun"}, batch}, rank, "openmpi"},
      {{self, shell, salloc, {6, "orted"}}, rank, ""},
  };
  for (const Origin& one : cases) {
    const LaunchOrigin origin(with_variables(kTask, one.more), one.processes);
    EXPECT_STREQ(origin.launcher == nullptr ? "" : origin.launcher->name, one.launcher)
        << &one - cases;
    EXPECT_EQ(origin.environment.has("SLURM_STEP_ID"), *one.launcher != '\0') << &one - cases;
  }
}

// By ssh with the environment, or in a shell of tmux, whose server is no longer below the task.
TEST(LaunchOrigin, TakesAProcessThatHasLeftTheTaskForNoTask) {
  const ProcessEntry self{9, "torchbridge"}, shell{8, "bash"}, init{1, "systemd"};
  struct Origin {
    std::vector<ProcessEntry> processes;
    bool is_task;
  };
  const Origin cases[] = {
      {{self, shell, init}, false},
      {{self, {8, "sshd"}, {7, "sshd"}, init}, false},
      {{self, init}, false},
      {{self, shell}, true},  // more may be above: hidepid
      {{self, shell, {7, "slurmstepd"}, init}, true},
      {{self, shell, {7, "slurmstepd", "5.0"}, {6, "slurmd"}, init}, true},
      {{self, {8, "conmon"}, init}, true},
      {{self, {8, "containerd-shim"}, init}, true},
      {{self, {8, "orted"}, {7, "sshd"}, init}, true},
  };
  const EnvMap task = with_variables(kTask, {{"SLURM_TASK_PID", "77"}});
  for (const Origin& one : cases) {
    const LaunchOrigin origin(task, one.processes);
    EXPECT_EQ(origin.facts.has_value(), one.is_task || !has_process_ids_of_host()) << &one - cases;
    EXPECT_EQ(origin.facts || origin.facts_error.message.starts_with(
                                  "the variables are of task 1 of 4 of Slurm's step 5.0, but"),
              true)
        << origin.facts_error.message;
    EXPECT_NE(LaunchOrigin(kTask, one.processes).launcher, nullptr) << "variables set by hand";
    const EnvMap rank =
        with_variables(task, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    EXPECT_NE(LaunchOrigin(rank, one.processes).launcher, nullptr) << "of a launcher inside";
  }
}

TEST(LaunchOrigin, LeavesOutARankOfTheStepInWhichABatchScriptWasSubmitted) {
  const EnvMap outer = with_variables(kTask, {{"RANK", "7"},
                                              {"WORLD_SIZE", "8"},
                                              {"MASTER_ADDR", "n0"},
                                              {"MASTER_PORT", "29500"},
                                              {"TORCHELASTIC_RUN_ID", "a run"},
                                              {kSetByVariable, "plugin slurm-5.0 a run"}});
  const LaunchOrigin origin(outer, {{9, "bash"}, {8, "slurmstepd", "6.batch"}});
  EXPECT_FALSE(origin.environment.has("RANK"));
  EXPECT_EQ(origin.launch(), "none");
}

// A script exports WORLD_SIZE=GPUs x nodes for torchrun.
TEST(OriginOfAgent, HasNoRanksThatAreNotTheLaunchers) {
  const auto size_of_agent = [](const EnvMap& exported) {
    const EnvMap mpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
    const LaunchOrigin agent = origin_of_agent(
        LaunchOrigin(with_variables(mpirun, {exported.begin(), exported.end()}), {}));
    return std::string(agent.environment.get("WORLD_SIZE").value_or("none"));
  };
  EXPECT_EQ(size_of_agent({{"WORLD_SIZE", "8"}}), "none");
  EXPECT_EQ(size_of_agent({{"WORLD_SIZE", "8"}, {"RANK", "1"}}), "none");
  EnvMap all = {{"RANK", "1"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
  all.set("WORLD_SIZE", "8");
  EXPECT_EQ(size_of_agent(all), "none");
  all.set("WORLD_SIZE", "4");
  EXPECT_EQ(size_of_agent(all), "4");
}

}  // namespace
}  // namespace torchbridge
