#include "bridge/core/launcher.h"

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/core/launchers/launchers.h"

namespace torchbridge {
namespace {

using Kind = Launcher::Kind;

// Innermost first. mpirun is a link to orterun or prterun; the daemons on the nodes are orted,
// prted and hydra_pmi_proxy, and those of Flux and Slurm flux-shell and slurmstepd. Slurm and Flux
// can set PALS's variables too, for Cray's MPI, and give more facts than PALS does. The last two
// are for processes that no other entry recognises.
constexpr Launcher kLaunchers[] = {
    {"openmpi", Kind::kMpi, detect_openmpi, read_openmpi, "OMPI_MCA_ess_base_jobid",
     "mpirun mpiexec orte prte"},
    {"hydra", Kind::kMpi, detect_hydra, read_hydra, "", "mpirun mpiexec hydra_"},
    {"flux", Kind::kResourceManager, detect_flux, read_flux, "FLUX_JOB_ID", "flux-shell"},
    {"jsrun", Kind::kResourceManager, detect_jsrun, read_jsrun},
    {"slurm", Kind::kResourceManager, detect_slurm, read_slurm, "SLURM_JOB_ID SLURM_STEP_ID",
     "slurmstepd"},
    {"pals", Kind::kResourceManager, detect_pals, read_pals, "PALS_APID"},
    {"pmi", Kind::kMpi, detect_pmi, read_pmi},
    {"pmix", Kind::kMpi, detect_pmix, read_pmix, "PMIX_NAMESPACE"},
};

// slurmstepd names the process that it starts: no mpirun can be between it and that very process.
bool is_task_of_slurm(const EnvMap& environment, std::int64_t process_id) {
  return process_id > 0 && environment.get("SLURM_TASK_PID") == std::to_string(process_id) &&
         detect_slurm(environment);
}

std::string claim_of(const LaunchFacts& facts) {
  return formatted("the variables of {} give rank {} of {}", facts.launcher, facts.rank,
                   facts.world_size);
}

}  // namespace

const Launcher* innermost_launcher(const EnvMap& environment, std::int64_t process_id) {
  const bool is_task = is_task_of_slurm(environment, process_id);
  for (const Launcher& launcher : kLaunchers) {
    if (is_task ? launcher.read == read_slurm : launcher.detect(environment)) return &launcher;
  }
  return nullptr;
}

Result<LaunchFacts> read_launcher(const Launcher& innermost, const EnvMap& environment) {
  auto facts = innermost.read(environment);
  const bool two_mpiruns = innermost.read == read_openmpi && detect_hydra(environment);
  if (!facts || !two_mpiruns) return facts;
  const auto others = read_hydra(environment);
  if (!others) return others.error();
  if (others->rank == facts->rank && others->world_size == facts->world_size) return facts;
  return Error{formatted(
      "{}, but {}: one was started inside the other: unset the variable of the outer one, "
      "OMPI_COMM_WORLD_RANK or MPI_LOCALNRANKS, for the inner one (env -u NAME mpiexec ...)",
      claim_of(*facts), claim_of(*others))};
}

std::string job_key(const EnvMap& environment) {
  std::string key;
  for (const Launcher& launcher : kLaunchers) {
    for (std::string_view names = launcher.job_variables; !names.empty();) {
      const std::string_view name = take_until(names, ' ');
      if (const auto value = environment.get(name))
        key += "/" + std::string(name) + "=" + std::string(*value);
    }
  }
  return key;
}

const Launcher* launcher_with_process(std::string_view name) {
  for (const Launcher& launcher : kLaunchers) {
    for (std::string_view beginnings = launcher.processes; !beginnings.empty();) {
      if (name.starts_with(take_until(beginnings, ' '))) return &launcher;
    }
  }
  return nullptr;
}

bool starts_ranks(std::string_view process_name) {
  const Launcher* launcher = launcher_with_process(process_name);
  return launcher != nullptr && launcher->kind == Kind::kMpi;
}

}  // namespace torchbridge
