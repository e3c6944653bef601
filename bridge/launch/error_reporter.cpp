#include "bridge/launch/error_reporter.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "bridge/launch/launch.h"
#include "bridge/launch/launcher_exchange.h"
#include "bridge/launch/launcher_of_process.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

// Held until this process ends.
bool is_first_on_node(const EnvMap& environment) {
  std::string job;
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "FLUX_JOB_ID"}) {
    job += "/" + std::string(environment.get(name).value_or(""));
  }
  job += "/" + key_of_pmi(environment);
  return job.find_first_not_of('/') == job.npos || hold_name("error" + job);
}

}  // namespace

bool reports(const Error& error, const EnvMap& environment) {
  constexpr int kDeputies = 3;
  constexpr std::chrono::seconds kTurn{2};
  const int rank = presumed_rank(environment);
  if (!error.reported_elsewhere && (error.only_here ? is_first_on_node(environment) : rank == 0)) return true;
  if (!is_mpirun(environment)) return false;
  std::this_thread::sleep_for(std::min(std::max(rank, 1), kDeputies) * kTurn);
  return !error.reported_elsewhere && !error.only_here && rank <= kDeputies;
}

}  // namespace torchbridge
