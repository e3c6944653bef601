// A way for the ranks of a job to tell each other what the launcher did not tell them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>
#include <torchbridge/net/gathering.h>
#include <torchbridge/net/node_gathering.h>

namespace torchbridge {

// One connection to the other ranks; ended by the destructor, after which the process, or a program that it becomes by exec, is
// free to use the launcher's library itself. Not for several threads at once.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Collective: gives `value` (any bytes, not empty, at most 400) and returns the values of ranks 0..world_size-1. Where
  // ranks never came the error says how long was waited, and which they are if that can be known.
  virtual Result<std::vector<std::string>> all_gather(const std::string& value, std::chrono::milliseconds timeout) = 0;
};

// Between ranks of one node, by a socket that `key` names (net/node_gathering.h). No launcher takes part, so that it works
// under any, in well below a millisecond once all have come.
std::unique_ptr<Exchange> meet_on_node(const std::string& key, int rank, int world_size, Beyond beyond = {});

// Over several nodes: the ranks of each meet on it, and one of them meets the other nodes over TCP (net/gathering.h). No
// launcher takes part. Where no other node was heard of within gathering.patience or half of the time, the ranks ask `otherwise`.
struct NodeGroup {
  std::string node_key;                  // as for meet_on_node
  int local_rank = 0, local_size = 1;
  int rank = 0;
  Gathering gathering;                   // its timeout is set here; it listens on the node of rank 0 anyway
};
using Otherwise = std::function<Result<std::unique_ptr<Exchange>>()>;
std::unique_ptr<Exchange> meet_over_nodes(NodeGroup group, Otherwise otherwise);

// PMI-1 on the descriptor that PMI_FD names: Hydra (MPICH, Intel MPI), Flux. The descriptor stays usable for MPI; a small
// process is left behind it until the program ends (pmi_keeper.h), so where all ranks are on one node meet_on_node is better.
Result<std::unique_ptr<Exchange>> connect_pmi(const EnvMap& environment, int rank, int world_size);

// A key for meet_on_node made of the process at the other end of PMI_FD, Hydra's proxy on this node, without a word to it.
// Empty where there is none, or where it cannot be seen from here.
std::string key_of_pmi(const EnvMap& environment);

// The launcher's PMIx server (PMIx standard 4, https://pmix.github.io): mpirun of OpenMPI, srun --mpi=pmix. An error
// where this process has none, or where the build has no PMIx. Sets PMIX_MCA_gds in the environment of the process, unless
// it is set: see kPmixVariable.
Result<std::unique_ptr<Exchange>> connect_pmix(int world_size);

// A rank that comes to OpenMPI 4.1's PMIx server a second time finds nothing in the store that both share in memory, and
// MPI_Init fails always; with the store "hash" it mostly succeeds (docs/launchers.md). The variable must still be set then.
inline constexpr const char* kPmixVariable = "PMIX_MCA_gds";
inline constexpr const char* kPmixValue = "hash";

}  // namespace torchbridge
