#include <gtest/gtest.h>

#include "bridge/core/launchers/launchers.h"
#include "tests/support/recorded_environment.h"

namespace torchbridge {
namespace {

constexpr char kUneven[] = "slurm-22.05-4n8t-uneven";

TEST(Slurm, ReadsJobStepNodesAndPorts) {
  EnvMap environment = recorded_environment(kUneven, 6);
  environment.set("SLURM_JOB_ID", "42");
  environment.set("SLURM_RESTART_COUNT", "1");
  environment.set("SLURM_STEP_RESV_PORTS", "20004-20005,20007");
  const auto facts = read_slurm(environment);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->job_id, "42");
  EXPECT_EQ(facts->step_id, "0");
  EXPECT_EQ(facts->restart_count, 1);
  EXPECT_EQ(facts->nodes, (std::vector<std::string>{"n0", "n1", "n2", "n3"}));
  EXPECT_EQ(facts->reserved_ports, (std::vector<int>{20004, 20005, 20007}));
}

// LaunchParameters=use_interactive_step: a shell of salloc, of one task whatever the job has.
TEST(Slurm, StepsOfItsOwnAreNoStepsOfRanks) {
  EnvMap environment = recorded_environment(kUneven, 0);
  EXPECT_TRUE(detect_slurm(environment));
  for (const char* id : {"4294967290", "4294967291", "4294967292"}) {  // interactive, batch, extern
    environment.set("SLURM_STEP_ID", id);
    EXPECT_FALSE(detect_slurm(environment)) << id;
  }
}

TEST(Slurm, NamesTheVariableThatIsWrong) {
  const struct {
    const char* name;
    const char* value;
    const char* message;
  } kCases[] = {
      {"SLURM_STEP_TASKS_PER_NODE", "5,1(x",
       "SLURM_STEP_TASKS_PER_NODE: list '5,1(x': missing ')'"},
      {"SLURM_STEP_TASKS_PER_NODE", "", "SLURM_STEP_TASKS_PER_NODE is empty"},
      {"SLURM_STEP_NODELIST", "n[0-", "SLURM_STEP_NODELIST: list 'n[0-': missing ']'"},
      {"SLURM_PROCID", "8", "SLURM_PROCID='8': expected an integer from 0 to 7"},
      {"SLURM_PROCID", "-1", "SLURM_PROCID='-1': expected an integer from 0 to 7"},
      {"SLURM_STEP_NUM_TASKS", "0",
       "SLURM_STEP_NUM_TASKS='0': expected an integer from 1 to 10000000"},
      {"SLURM_GTIDS", "0;1", "SLURM_GTIDS: list '0;1': expected a number or a range LO-HI"},
      {"SLURM_STEP_RESV_PORTS", "70000",
       "SLURM_STEP_RESV_PORTS: list '70000': no number may exceed 65535"},
      {"SLURM_STEP_RESV_PORTS", "0,20000",
       "SLURM_STEP_RESV_PORTS: list '0,20000': a port is from 1 to 65535"},
      {"SLURM_STEP_ID", "", "SLURM_STEP_ID is empty"},
      {"SLURM_RESTART_COUNT", "x",
       "SLURM_RESTART_COUNT='x': expected an integer from 0 to 2147483647"},
      {"SLURM_JOB_ID", "4294967296",
       "SLURM_JOB_ID='4294967296': expected an integer from 0 to 4294967295"},
  };
  for (const auto& test : kCases) {
    EnvMap environment = recorded_environment(kUneven, 6);
    environment.set(test.name, test.value);
    const auto facts = read_slurm(environment);
    ASSERT_FALSE(facts) << test.message;
    EXPECT_EQ(facts.error().message, test.message);
  }
}

TEST(Slurm, NamesTheVariableThatIsMissing) {
  for (const std::string missing :
       {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    EnvMap environment;
    for (const auto& [name, value] : recorded_environment(kUneven, 6)) {
      if (name != missing) environment.set(name, value);
    }
    const auto facts = read_slurm(environment);
    ASSERT_FALSE(facts) << missing;
    EXPECT_EQ(facts.error().message, missing + " is not set");
  }
}

TEST(Slurm, ABatchScriptIsNoTask) {
  EXPECT_FALSE(detect_slurm({{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));
}

}  // namespace
}  // namespace torchbridge
