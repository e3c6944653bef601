#include "bridge/core/launcher.h"

#include "bridge/core/launchers/flux.h"
#include "bridge/core/launchers/hydra.h"
#include "bridge/core/launchers/jsrun.h"
#include "bridge/core/launchers/openmpi.h"
#include "bridge/core/launchers/pals.h"
#include "bridge/core/launchers/pmix.h"
#include "bridge/core/launchers/slurm.h"

namespace torchbridge {
namespace {

using Kind = Launcher::Kind;

// Innermost first. Slurm and Flux can set PALS's variables too, for Cray's MPI, and give more facts than PALS does. The
// last two are for processes that no other entry recognises.
constexpr Launcher kLaunchers[] = {
    {"openmpi", Kind::kMpi, detect_openmpi, read_openmpi},
    {"hydra", Kind::kMpi, detect_hydra, read_hydra},
    {"flux", Kind::kResourceManager, detect_flux, read_flux},
    {"jsrun", Kind::kResourceManager, detect_jsrun, read_jsrun},
    {"slurm", Kind::kResourceManager, detect_slurm, read_slurm},
    {"pals", Kind::kResourceManager, detect_pals, read_pals},
    {"pmi", Kind::kMpi, detect_pmi, read_pmi},
    {"pmix", Kind::kMpi, detect_pmix, read_pmix},
};

// slurmstepd names the process that it starts: no mpirun can be between it and that very process.
bool is_task_of_slurm(const EnvMap& environment, std::int64_t process_id) {
  return process_id > 0 && detect_slurm(environment) && environment.get("SLURM_TASK_PID") == std::to_string(process_id);
}

std::string claim_of(const LaunchFacts& facts) {
  return "the variables of " + facts.launcher + " give rank " + std::to_string(facts.rank) + " of " +
         std::to_string(facts.world_size);
}

}  // namespace

const Launcher* innermost_launcher(const EnvMap& environment, std::int64_t process_id) {
  const bool is_task = is_task_of_slurm(environment, process_id);
  for (const Launcher& launcher : kLaunchers) {
    if (is_task ? launcher.read == read_slurm : launcher.detect(environment)) return &launcher;
  }
  return nullptr;
}

Result<const Launcher*> find_launcher(const EnvMap& environment, std::int64_t process_id) {
  const Launcher* innermost = innermost_launcher(environment, process_id);
  if (innermost == nullptr || innermost->kind != Kind::kMpi) return innermost;
  const auto facts = innermost->read(environment);
  if (!facts) return facts.error();
  const bool two_mpiruns = innermost->read == read_openmpi && detect_hydra(environment);
  if (!two_mpiruns) return innermost;
  const auto others = read_hydra(environment);
  if (!others) return others.error();
  if (others->rank == facts->rank && others->world_size == facts->world_size) return innermost;
  return Error{claim_of(*facts) + ", but " + claim_of(*others) +
               ": one was started inside the other: unset the variable of the outer one, OMPI_COMM_WORLD_RANK or " +
               "MPI_LOCALNRANKS, for the inner one (env -u NAME mpiexec ...)"};
}

}  // namespace torchbridge
