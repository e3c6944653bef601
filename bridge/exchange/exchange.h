// A way for the ranks of a job to tell each other what the launcher did not tell them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torchbridge/core/result.h>

namespace torchbridge {

// One connection to the launcher's key-value space; ended by the destructor, after which the process is free to use the
// launcher's library itself. Not for several threads at once.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Collective: gives `value` (any bytes, not empty) and returns the values of ranks 0..world_size-1. The ranks' names
  // that never came are not known to the launcher; the error says how long was waited.
  virtual Result<std::vector<std::string>> all_gather(const std::string& value, std::chrono::milliseconds timeout) = 0;
};

// The launcher's PMIx server (PMIx standard 4, https://pmix.github.io): mpirun of OpenMPI, srun --mpi=pmix. An error
// where this process has none, or where the build has no PMIx.
Result<std::unique_ptr<Exchange>> connect_pmix(int world_size);

}  // namespace torchbridge
