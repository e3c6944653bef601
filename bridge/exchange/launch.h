// How this process was started, whoever started it: the one call a program needs before it forms a process group.
#pragma once

#include <chrono>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/torch_env.h>
#include <torchbridge/net/socket.h>

namespace torchbridge {

struct Launch {
  TorchEnv env;
  // On rank 0, where the address was chosen here and not given to us: bound to env.master and listening, for the store
  // to accept on, so that nobody else can take the port. Not open otherwise.
  Socket store_socket;
  // Who told us, for messages: "environment" where RANK and its companions were set, by whomever; "slurm"; "openmpi"; or
  // "none" for a single process that nobody launched.
  std::string launcher = "none";
};

// Finds the innermost launcher in `environment` and turns what it says into a TorchEnv. RANK and its companions, set by
// torchrun, by the SPANK plugin or by hand, are taken at their word. Under mpirun all ranks must call it, for they
// exchange address and port; it waits for the others at most `timeout`, then says that they did not come.
// Changes nothing in the environment of the process. Not for several threads at once.
Result<Launch> resolve_launch(const EnvMap& environment, std::chrono::milliseconds timeout = std::chrono::seconds(60));

// The rank as far as it can be told without a complete launch, so that one rank may speak for all when something is wrong;
// 0 where it cannot be told.
int presumed_rank(const EnvMap& environment);

}  // namespace torchbridge
