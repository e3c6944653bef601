// Finds how this process was started, under any launcher: the one call a program needs before it
// forms a process group.
#pragma once

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/bootstrap/exchange.h"
#include "bridge/core/init_method.h"
#include "bridge/launch/launch_origin.h"
#include "bridge/launch/launch_types.h"

namespace torchbridge {

// Makes a TorchEnv of what the innermost launcher gives. RANK and the related variables, set by
// torchrun, by the SPANK plugin or by hand, are used as they are; it is an error if they contradict
// the launcher. Under launchers that do not give all facts (all but
// PALS, a single rank, and Slurm without --distribution=arbitrary) the call is collective: the
// ranks exchange nodes, address and port. It waits for the other ranks at most settings.timeout;
// then the error names those that did not arrive. Afterwards MPI_Init works, in this process and in
// a program that it becomes by exec. The exception is PMIx (OpenMPI over several nodes that cannot
// connect to each other, jsrun; docs/use/launchers.md): there MPI_Init fails now and then, and
// PMIX_MCA_gds is set in the environment of the process; nothing else is changed in it. Under Hydra
// over several nodes PMI_FD leads to a process of ours (pmi_proxy.h). Not for several threads at
// once.
Result<Launch> resolve_launch(const LaunchOrigin& origin, const LaunchSettings& settings = {});
// For a program that needs the origin for nothing else.
Result<Launch> resolve_launch(const EnvMap& environment, const LaunchSettings& settings = {});

// "started by slurm", "started by slurm with torchrun's variables", "found by tcp://", "started
// without a launcher".
std::string how_started(const Launch& launch);

// For ranks that can communicate without a launcher: see <torchbridge/mpi/mpi_launch.h>.
struct ExchangeRanks {
  int rank = 0, world_size = 1;
  int local_size = 0;  // ranks on this node; 0 where it is not known
};
// Collective. The launcher is called "mpi", whatever the exchange is; MASTER_ADDR and MASTER_PORT
// are used where set.
Result<Launch> resolve_launch(Exchange& exchange, const ExchangeRanks& ranks,
                              const EnvMap& environment, const LaunchSettings& settings);

// For a program that gives an init method. The error contains what the method needs. With file://
// the address of the store is empty: the store is method.path. Where the method names a launcher,
// MASTER_ADDR and MASTER_PORT are ignored, and a rank or world size that the program gives must be
// the launcher's. With tcp:// and file:// ranks whose nodes are not known count as ranks of one
// node.
Result<Launch> resolve_launch(const InitMethod& method, const GivenRanks& arguments,
                              const LaunchOrigin& origin, const LaunchSettings& settings = {});

}  // namespace torchbridge
