// How the ranks of a job come to one store.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/launch/launch.h"
#include "trainer_template/runtime/rendezvous/join_ranks.h"

namespace torchbridge::train {

struct JoinedStore {
  c10::intrusive_ptr<c10d::Store> store;  // below a key of the run and its attempt
  std::string own_address;                // by which the other ranks reach this one
  JoinResult join_result;
};

// Collective. Rank 0 serves the store, unless an agent does, on the socket that the launch brought or on one that it
// binds. With one rank it is a store within the process; with file:// it is that file, which the last rank to leave
// removes. Throws TrainError, which names address, port and variable, or the ranks that are missing after `patience`,
// with their nodes; PeerFailed where another rank says what is wrong.
JoinedStore join_store(Launch& launch, const JoinRequest& request);

}  // namespace torchbridge::train
