#include "bridge/core/launchers/launchers.h"
#include "bridge/core/launchers/variable_reader.h"

namespace torchbridge {

bool detect_flux(const EnvMap& environment) {
  return environment.has("FLUX_TASK_RANK") && environment.has("FLUX_JOB_SIZE");
}

Result<LaunchFacts> read_flux(const EnvMap& environment) {
  VariableReader read(environment);
  LaunchFacts facts;
  facts.launcher = "flux";
  facts.world_size = read.integer("FLUX_JOB_SIZE", 1, kMaxRanks);
  facts.rank = read.integer("FLUX_TASK_RANK", 0, facts.world_size - 1);
  facts.local_rank = read.integer("FLUX_TASK_LOCAL_ID", 0, facts.world_size - 1);
  const int nodes = read.integer("FLUX_JOB_NNODES", 1, facts.world_size);
  if (read.error() != nullptr) return *read.error();
  // In flux's own base 58: "f3yVmzp" or with a leading florin sign. Made of characters that any
  // variable may hold.
  for (const char c : read.text("FLUX_JOB_ID")) {
    if (static_cast<unsigned char>(c) < 0x80) facts.job_id += c;
  }
  facts.local_size = 0;
  if (nodes == 1) {
    facts.local_size = facts.world_size;
    facts.tasks_per_node = {facts.world_size};
    facts.local_rank = facts.rank;
    if (!facts.job_id.empty())
      facts.node_key = "flux " + facts.job_id + " " + read.text("FLUX_KVS_NAMESPACE");
  } else if (nodes == facts.world_size) {
    facts.local_size = 1;
  }
  return facts;
}

}  // namespace torchbridge
