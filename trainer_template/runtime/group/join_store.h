// How the ranks of a job come to one store, and find out whether all of them came.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <torchbridge/exchange/launch.h>

namespace torchbridge::train {

struct JoinedStore {
  c10::intrusive_ptr<c10d::Store> store;  // below a key of the run and its attempt
  std::string own_address;                // by which the other ranks reach this one
};

struct JoinRequest {
  InitMethod method;
  c10::intrusive_ptr<c10d::Store> store;  // of the program, of method kStore
  std::string group_name;
  std::chrono::milliseconds patience{};
  std::optional<std::string> trouble;  // why this rank cannot take part: where several say the same, one of them throws it
};

// Collective. Rank 0 serves the store, unless an agent does, on the socket that the launch brought or on one that it binds.
// With one rank it is a store within the process; with file:// it is that file, which the last rank to leave removes. Throws TrainError,
// which names address, port and variable, or the ranks that are missing after `patience`, with their nodes; PeerFailed where another
// rank says what is wrong.
JoinedStore join_store(Launch& launch, const JoinRequest& request);

// "10.77.0.1 port 29500", or the name of the file.
std::string where(const Endpoint& endpoint, const InitMethod& method);

}  // namespace torchbridge::train
