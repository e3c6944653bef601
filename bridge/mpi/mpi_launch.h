// For programs that have initialised MPI themselves: the ranks of a communicator exchange their
// addresses by MPI.
//
// The program includes its own mpi.h and links its own MPI. This is a header because every MPI has
// a binary interface of its own, so a library would work with one MPI only.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include <mpi.h>

#include "bridge/bootstrap/exchange.h"
#include "bridge/launch/launch.h"

namespace torchbridge {

// Collective over the communicator, which must outlive it. MPI has no timeouts: where a rank does
// not call it, the others wait as long as in any other MPI call.
class MpiExchange : public Exchange {
 public:
  explicit MpiExchange(MPI_Comm communicator) : communicator_(communicator) {}

  Result<std::vector<std::string>> all_gather(const std::string& value,
                                              std::chrono::milliseconds) override {
    // More than the 400 bytes of an Exchange's value, and the length before them.
    constexpr int kSlot = 512;
    int size = 0;
    MPI_Comm_size(communicator_, &size);
    std::vector<char> own(kSlot), all(static_cast<std::size_t>(kSlot) * size);
    own[0] = static_cast<char>(value.size() & 0xff);
    own[1] = static_cast<char>(value.size() >> 8);
    value.copy(own.data() + 2, kSlot - 2);
    if (MPI_Allgather(own.data(), kSlot, MPI_CHAR, all.data(), kSlot, MPI_CHAR, communicator_) !=
        MPI_SUCCESS) {
      return Error{"MPI_Allgather failed"};
    }
    std::vector<std::string> values;
    for (int rank = 0; rank < size; ++rank) {
      const char* slot = all.data() + static_cast<std::size_t>(kSlot) * rank;
      values.emplace_back(slot + 2, static_cast<unsigned char>(slot[0]) +
                                        256 * static_cast<unsigned char>(slot[1]));
    }
    return values;
  }

 private:
  MPI_Comm communicator_;
};

// Collective over the ranks of `communicator`, which may be a part of all ranks: RANK is the rank
// in it. The result is as without MPI. REQUIRES: MPI is initialised and not finalised. MASTER_ADDR
// and MASTER_PORT of the environment are used where both are set.
inline Result<Launch> resolve_launch(MPI_Comm communicator, const LaunchSettings& settings = {}) {
  ExchangeRanks ranks;
  MPI_Comm node = MPI_COMM_NULL;
  const bool is_known = MPI_Comm_rank(communicator, &ranks.rank) == MPI_SUCCESS &&
                        MPI_Comm_size(communicator, &ranks.world_size) == MPI_SUCCESS &&
                        MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, ranks.rank,
                                            MPI_INFO_NULL, &node) == MPI_SUCCESS &&
                        MPI_Comm_size(node, &ranks.local_size) == MPI_SUCCESS &&
                        MPI_Comm_free(&node) == MPI_SUCCESS;
  if (!is_known) return Error{"MPI gives no ranks for the communicator: call MPI_Init first"};
  MpiExchange exchange(communicator);
  return resolve_launch(exchange, ranks, EnvMap::from(environ), settings);
}

}  // namespace torchbridge
