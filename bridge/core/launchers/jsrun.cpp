#include "bridge/core/launchers/launchers.h"
#include "bridge/core/launchers/variable_reader.h"

namespace torchbridge {

bool detect_jsrun(const EnvMap& environment) { return environment.has("JSM_NAMESPACE_RANK"); }

Result<LaunchFacts> read_jsrun(const EnvMap& environment) {
  VariableReader read(environment);
  LaunchFacts facts;
  facts.launcher = "jsrun";
  facts.world_size = read.integer("JSM_NAMESPACE_SIZE", 1, kMaxRanks);
  facts.rank = read.integer("JSM_NAMESPACE_RANK", 0, facts.world_size - 1);
  facts.local_size = read.integer("JSM_NAMESPACE_LOCAL_SIZE", 1, facts.world_size);
  facts.local_rank = read.integer("JSM_NAMESPACE_LOCAL_RANK", 0, facts.local_size - 1);
  if (read.error() != nullptr) return *read.error();
  facts.job_id = read.text("LSB_JOBID");
  facts.step_id = read.text("PMIX_NAMESPACE");
  if (!facts.step_id.empty()) facts.node_key = "jsrun " + facts.job_id + " " + facts.step_id;
  if (facts.local_size == facts.world_size) {
    facts.tasks_per_node = {facts.world_size};
    facts.local_rank = facts.rank;
  }
  return facts;
}

}  // namespace torchbridge
