// How the ranks of a job come to one store, and find out whether all of them came.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <torchbridge/exchange/launch.h>

namespace torchbridge::train {

struct JoinedStore {
  c10::intrusive_ptr<c10d::Store> store;  // below a key of the run and its attempt
  std::string own_address;                // by which the other ranks reach this one
};

// Collective. Rank 0 serves the store, unless an agent does, on the socket that the launch brought or on one that it binds.
// With one rank it is a store within the process; with file:// it is that file, which the last rank to leave removes. Throws TrainError, which names address, port and variable, or the ranks
// that are missing after `patience`; PeerFailed where rank 0 says so.
JoinedStore join_store(Launch& launch, const InitMethod& method, std::chrono::milliseconds patience);

// "10.77.0.1 port 29500", or the name of the file.
std::string where(const Endpoint& endpoint, const InitMethod& method);

}  // namespace torchbridge::train
