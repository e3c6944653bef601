#include "bridge/base/message_text.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/launchers/variable_reader.h"

namespace torchbridge {

// Each of these sets or passes on OMPI_COMM_WORLD_* without an mpirun between it and the process.
bool detect_openmpi(const EnvMap& environment) {
  if (!environment.has("OMPI_COMM_WORLD_RANK")) return false;
  // Spectrum MPI: jsrun itself sets both families, with the same values.
  const bool of_jsrun =
      environment.has("JSM_NAMESPACE_RANK") &&
      environment.get("JSM_NAMESPACE_RANK") == environment.get("OMPI_COMM_WORLD_RANK") &&
      environment.get("JSM_NAMESPACE_SIZE") == environment.get("OMPI_COMM_WORLD_SIZE");
  // srun --mpi=pmix inside an mpirun: mpirun always sets PMIX_NAMESPACE, so Slurm has set it after
  // mpirun.
  const bool outside_of_srun =
      environment.get("PMIX_NAMESPACE").value_or("").starts_with("slurm.pmix.");
  return !of_jsrun && !outside_of_srun;
}

Result<LaunchFacts> read_openmpi(const EnvMap& environment) {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    if (!environment.has(name)) {
      return Error{
          formatted("{} is not set, although OMPI_COMM_WORLD_RANK is: start the program with "
                    "mpirun, or unset OMPI_COMM_WORLD_RANK",
                    name)};
    }
  }
  VariableReader read(environment);
  LaunchFacts facts;
  facts.launcher = "openmpi";
  facts.world_size = read.integer("OMPI_COMM_WORLD_SIZE", 1, kMaxRanks);
  facts.rank = read.integer("OMPI_COMM_WORLD_RANK", 0, facts.world_size - 1);
  facts.local_size = read.integer("OMPI_COMM_WORLD_LOCAL_SIZE", 1, facts.world_size);
  facts.local_rank = read.integer("OMPI_COMM_WORLD_LOCAL_RANK", 0, facts.local_size - 1);
  const int pmix_rank = read.integer_or("PMIX_RANK", 0, kMaxRanks, facts.rank);
  if (read.error() != nullptr) return *read.error();
  if (pmix_rank != facts.rank) {
    return Error{
        formatted("OMPI_COMM_WORLD_RANK='{}', but PMIX_RANK='{}': the variables of two launchers "
                  "are mixed; unset those of the outer one (env -u NAME)",
                  facts.rank, pmix_rank)};
  }

  // "1457848321" in 4.1, "prterun-HOST-PID@1" in 5.0: the namespace is the job's name in mpirun's
  // runtime.
  facts.job_id = read.text("PMIX_NAMESPACE");
  if (const auto server = pmix_server_uri(environment); !server.empty() && !facts.job_id.empty()) {
    facts.node_key = facts.job_id + " " + std::string(server);
  }
  if (facts.local_size == facts.world_size) {
    facts.tasks_per_node = {facts.world_size};
    // 5.0 numbers the ranks of a node by the cores they are mapped to: rank 1 of 4 may be local
    // rank 2.
    facts.local_rank = facts.rank;
  }
  return facts;
}

}  // namespace torchbridge
