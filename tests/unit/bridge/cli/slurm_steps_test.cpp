#include "bridge/cli/slurm_steps.h"

#include <gtest/gtest.h>

#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/task_map.h"

using namespace torchbridge;

namespace {

TEST(SlurmSteps, AreNamedByJobAndStep) {
  for (const char* text : {"123", "123.0", "7.12"}) EXPECT_TRUE(is_slurm_job(text)) << text;
  for (const char* text : {"", "n0", "123.", ".0", "123.batch", "10.0.0.1", "n0:29400", "-1"}) {
    EXPECT_FALSE(is_slurm_job(text)) << text;
  }
}

// As scontrol of Slurm 22.05 prints them.
constexpr char kSteps[] =
    "StepId=5.batch UserId=0 State=RUNNING NodeList=n0 Nodes=1 ResvPorts=(null)\n"
    "StepId=5.0 UserId=0 State=RUNNING Partition=debug NodeList=n[1-3] Nodes=3 "
    "ResvPorts=20004-20006 Host:Sid=x:1\n"
    "StepId=5.1 UserId=0 State=RUNNING NodeList=n2 Nodes=1 ResvPorts=(null)\n";

TEST(SlurmSteps, HaveTheEndpointAndIdThatTheirTasksFind) {
  const auto found = coordinators_in(kSteps, 0, {});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].endpoint, (Endpoint{"n1", 20004}));
  EXPECT_EQ((*found)[0].run_id, "slurm-5.0");
  EXPECT_EQ((*found)[1].endpoint.host, "n2");
  LaunchFacts facts;
  facts.job_id = "5";
  facts.step_id = "1";
  facts.nodes = {"n2"};
  EXPECT_EQ((*found)[1].endpoint, *endpoint_of(facts, TaskMap::block({1}), {}, {}));
  EXPECT_EQ((*coordinators_in(kSteps, 2, {}))[0].run_id, "slurm-5.0-r2");
}

}  // namespace
