#include "bridge/core/launchers/launchers.h"
#include "bridge/core/launchers/variable_reader.h"

namespace torchbridge {

// PMI_RANK alone is set by many; MPI_LOCALNRANKS is Hydra's own.
bool detect_hydra(const EnvMap& environment) {
  return environment.has("MPI_LOCALNRANKS") &&
         (environment.has("PMI_RANK") || environment.has("PMI_PORT"));
}

Result<LaunchFacts> read_hydra(const EnvMap& environment) {
  if (!environment.has("PMI_RANK")) {
    return Error{"hydra: PMI_PORT is set, but PMI_RANK is not: start mpiexec without -pmi-port"};
  }
  VariableReader read(environment);
  LaunchFacts facts;
  facts.launcher = "hydra";
  facts.world_size = read.integer("PMI_SIZE", 1, kMaxRanks);
  facts.rank = read.integer("PMI_RANK", 0, facts.world_size - 1);
  facts.local_size = read.integer("MPI_LOCALNRANKS", 1, facts.world_size);
  facts.local_rank = read.integer("MPI_LOCALRANKID", 0, facts.local_size - 1);
  if (read.error() != nullptr) return *read.error();
  if (facts.local_size == facts.world_size) {
    facts.tasks_per_node = {facts.world_size};
    facts.local_rank = facts.rank;
  } else {
    // The variables count the ranks of one daemon, and a node that is listed twice has two daemons.
    facts.local_size = facts.local_rank = 0;
  }
  return facts;
}

bool detect_pmi(const EnvMap& environment) {
  return environment.has("PMI_FD") && environment.has("PMI_RANK") && environment.has("PMI_SIZE");
}

Result<LaunchFacts> read_pmi(const EnvMap& environment) {
  VariableReader read(environment);
  LaunchFacts facts;
  facts.launcher = "pmi";
  facts.world_size = read.integer("PMI_SIZE", 1, kMaxRanks);
  facts.rank = read.integer("PMI_RANK", 0, facts.world_size - 1);
  facts.local_size = facts.world_size == 1 ? 1 : 0;
  facts.job_id = read.text("PMI_JOBID");
  if (facts.world_size == 1) facts.tasks_per_node = {1};
  if (read.error() != nullptr) return *read.error();
  return facts;
}

}  // namespace torchbridge
