// How a program joins its process group: the init_method of torch.distributed, as a URL
// (https://docs.pytorch.org/docs/stable/distributed.html#initialization).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {

// Rank and number of ranks, as far as a program, or the query of a URL, gives them.
struct GivenRanks {
  std::optional<int> rank, world_size;

  bool operator==(const GivenRanks&) const = default;
};

struct InitMethod {
  enum class Kind {
    kAny,          // "": by the launcher or the environment
    kEnvironment,  // env://: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    kTcp,          // tcp://HOST:PORT, an IPv6 address in brackets
    kFile,         // file:///PATH, which all ranks can write
    kSlurm,        // slurm://: Slurm's variables alone
    kMpi,          // mpi://: an mpirun's ranks exchange their addresses
    kPmix,         // pmix://: through PMIx
    kStore,        // no URL: the program brings a store that all ranks reach
  } kind = Kind::kAny;
  Endpoint endpoint;  // of kTcp
  std::string path;   // of kFile, absolute
  GivenRanks ranks;   // of the query, "?rank=0&world_size=4"

  bool operator==(const InitMethod&) const = default;
};

// The error contains the URL and the valid forms.
Result<InitMethod> parse_init_method(std::string_view url);

// Merges the values of the program, of the query and of RANK and WORLD_SIZE. An error where two of
// them differ, with both, and where a rank is not below its world size.
Result<GivenRanks> agreed_ranks(const GivenRanks& arguments, const InitMethod& method,
                                const EnvMap& environment);

}  // namespace torchbridge
