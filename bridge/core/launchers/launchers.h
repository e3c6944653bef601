// The launchers of the table in launcher.cpp: what tells each from the others, and the facts that
// its variables give.
#pragma once

#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// OpenMPI 4 and 5: the variables of a process started by mpirun, mpiexec or prterun.
bool detect_openmpi(const EnvMap& environment);
// Nodes are not known: where there is more than one, the ranks must exchange them.
Result<LaunchFacts> read_openmpi(const EnvMap& environment);

// Hydra, the mpiexec of MPICH and Intel MPI; also others that start processes by the PMI-1
// protocol.
bool detect_hydra(const EnvMap& environment);
// Nodes are not known: where there is more than one, the ranks must exchange them.
Result<LaunchFacts> read_hydra(const EnvMap& environment);

// A launcher of which nothing is known but that it offers PMI-1: rank and size, and a descriptor to
// exchange the rest.
bool detect_pmi(const EnvMap& environment);
Result<LaunchFacts> read_pmi(const EnvMap& environment);

// Flux: the variables of a task of a job (flux-core, src/shell/task.c and
// doc/man7/flux-environment.rst).
// True inside a task of a job; the initial program of an instance (flux start, flux batch) is none.
bool detect_flux(const EnvMap& environment);
// Where there is more than one node, neither the nodes nor the number of ranks on this one are
// known.
Result<LaunchFacts> read_flux(const EnvMap& environment);

// jsrun, the launcher of IBM's Job Step Manager under LSF: the variables of a task.
bool detect_jsrun(const EnvMap& environment);
// Nodes are not known (LSB_HOSTS lists slots of the job, batch node included, not of the step):
// where there is more than one, the ranks must exchange them.
Result<LaunchFacts> read_jsrun(const EnvMap& environment);

// Slurm: the variables of a task in a job step (22.05; man srun, "OUTPUT ENVIRONMENT VARIABLES").
// True inside a task of a step. A batch script and the shell of a salloc have SLURM_JOB_ID but are
// no step's task, also where Slurm runs them in a step of its own
// (LaunchParameters=use_interactive_step).
bool detect_slurm(const EnvMap& environment);
Result<LaunchFacts> read_slurm(const EnvMap& environment);
// Only what is the same for all tasks of the step: without the position of a task and the ranks of
// its node.
Result<LaunchFacts> read_slurm_step(const EnvMap& environment);

// PALS, the mpiexec and aprun of HPE Cray systems: the variables of a process, and the file of
// PALS_APINFO.
bool detect_pals(const EnvMap& environment);
// Where there is more than one node, the others are in the file that PALS_APINFO names. So is the
// number of ranks where PMI_SIZE is not set, as with another PMI than PALS's own: world_size is 0
// then.
Result<LaunchFacts> read_pals(const EnvMap& environment);

// Completes the facts of read_pals by the content of the file: the number of ranks, the names of
// the nodes that hold ranks, and the node of every rank. An error where the file is damaged, of an
// unknown layout, or contradicts the variables; `facts` is then unchanged. REQUIRES: the bytes were
// written on this machine or one of its kind (integers are not converted).
Status add_pals_apinfo(LaunchFacts& facts, std::string_view content);

// A launcher of which nothing is known but that it has a PMIx server, such as prun without
// OpenMPI's personality.
bool detect_pmix(const EnvMap& environment);
// "NAMESPACE.RANK;tcp4://ADDRESS:PORT" of the daemon that serves this process: of the variables
// PMIX_SERVER_URI*, the newest that begins with `beginning`; empty where there is none. PMIx 4 sets
// URI2 to URI41, PMIx 7 URI21 to URI61 and no URI2.
std::string_view pmix_server_uri(const EnvMap& environment, std::string_view beginning = {});
// Always an error: the variables contain a rank, but not the number of ranks.
Result<LaunchFacts> read_pmix(const EnvMap& environment);

}  // namespace torchbridge
