// How this process was started, whoever started it: the one call a program needs before it forms a process group.
#pragma once

#include <chrono>

#include "bridge/bootstrap/exchange.h"
#include "bridge/base/env_map.h"
#include "bridge/core/init_method.h"
#include "bridge/base/result.h"
#include "bridge/launch/launch_types.h"

namespace torchbridge {

// Finds the innermost launcher in `environment` and turns what it says into a TorchEnv. RANK and its companions, set by
// torchrun, by the SPANK plugin or by hand, are taken at their word, and are an error where they contradict the
// launcher. Under launchers that do not tell everything (all but PALS, a single rank, and Slurm without
// --distribution=arbitrary) all ranks must call it, for they exchange nodes, address and port; it waits for the others
// at most settings.timeout, then says that they did not come. Afterwards MPI_Init works, in this process and in a
// program that it becomes by exec. Only where PMIx had to be asked (OpenMPI over several nodes that cannot find each
// other, jsrun; docs/use/launchers.md) it fails now and then, and PMIX_MCA_gds is set in the environment of the process;
// nothing else is changed in it. Under Hydra over several nodes PMI_FD leads to a process of ours (pmi_proxy.h). Not
// for several threads at once.
Result<Launch> resolve_launch(const EnvMap& environment, const LaunchSettings& settings);
Result<Launch> resolve_launch(const EnvMap& environment, std::chrono::milliseconds timeout = std::chrono::seconds(60));

// For ranks that can talk to each other without a launcher: see <torchbridge/mpi/mpi_launch.h>.
struct ExchangeRanks {
  int rank = 0, world_size = 1;
  int local_size = 0;  // ranks on this node; 0 where it is not known
};
// Collective. The launcher is called "mpi", whatever the exchange is; MASTER_ADDR and MASTER_PORT are used where set.
Result<Launch> resolve_launch(Exchange& exchange, const ExchangeRanks& ranks, const EnvMap& environment,
                              const LaunchSettings& settings);

// For a program that names its way in. The error says what that way needs. With file:// the address of the store is
// empty: it is method.path. Where a launcher is asked, MASTER_ADDR and MASTER_PORT are not looked at, and a rank or
// world size that the program gives must be the launcher's. With tcp:// and file:// ranks whose nodes nobody tells are
// taken as one node's.
Result<Launch> resolve_launch(const InitMethod& method, const GivenRanks& arguments, const EnvMap& environment,
                              const LaunchSettings& settings = {});

// The environment without what we set for a launch around this one (core/nested_launch.h): a program that is started with
// ours on top of it must not find the rest of theirs.
EnvMap of_this_launch(const EnvMap& environment);

// The rank as far as it can be told without a complete launch, so that one rank may speak for all when something is
// wrong; 0 where it cannot be told.
int presumed_rank(const EnvMap& environment);

}  // namespace torchbridge
