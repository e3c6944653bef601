// The exchanges that a launcher's own service offers.
#pragma once

#include <memory>
#include <string>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/bootstrap/exchange.h"

namespace torchbridge {

// PMI-1 on the descriptor of PMI_FD: Hydra (MPICH, Intel MPI), Flux. The descriptor stays usable
// for MPI, but a small process stands behind it until the program ends (pmi_proxy.h), so where all
// ranks are on one node sockets are better.
Result<std::unique_ptr<Exchange>> connect_pmi(const EnvMap& environment, int rank, int world_size);

// A key for BootstrapGroup::node_key made of the process at the other end of PMI_FD, Hydra's proxy
// on this node. Sends nothing to it. Empty where there is none, or where it cannot be seen from
// this process.
std::string key_of_pmi(const EnvMap& environment);

// The launcher's PMIx server (PMIx standard 4, https://pmix.github.io): mpirun of OpenMPI, srun
// --mpi=pmix. An error where this process has none, or where the build has no PMIx. Sets
// PMIX_MCA_gds in the environment of the process, unless it is set: see kPmixVariable.
Result<std::unique_ptr<Exchange>> connect_pmix(int world_size);
bool is_built_with_pmix();

// A process that connects to OpenMPI 4.1's PMIx server a second time finds nothing in the
// shared-memory store, and MPI_Init always fails; with the store "hash" it mostly succeeds
// (docs/use/launchers.md). The variable must still be set at that time.
inline constexpr const char* kPmixVariable = "PMIX_MCA_gds";
inline constexpr const char* kPmixValue = "hash";

}  // namespace torchbridge
