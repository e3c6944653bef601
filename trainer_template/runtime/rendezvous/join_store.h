// How the ranks of a job reach one store.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/launch/launch.h"
#include "trainer_template/runtime/rendezvous/join_ranks.h"

namespace torchbridge::train {

struct JoinedStore {
  c10::intrusive_ptr<c10d::Store> store;  // its keys begin with the run and its attempt
  std::string own_address;                // numeric; the other ranks reach this one by it
  JoinResult join_result;
};

// Collective. Rank 0 serves the store, unless an agent does, on the socket of the launch or on one that it binds. With
// one rank it is a store within the process; with file:// it is that file, which the last rank to leave removes. Throws
// TrainError, which names address, port and variable, or the ranks that are missing after request.timeout, with their
// nodes; PeerFailed where another rank reports the error.
JoinedStore join_store(Launch& launch, const JoinRequest& request);

// How long join_store() takes at most, unless the process that serves the store is stopped: libtorch 2.11 waits for its
// answer without a timeout.
std::chrono::milliseconds longest_join(std::chrono::milliseconds timeout);
// Of a store whose process does not answer.
std::string no_answer_error(const TorchEnv& env, const InitMethod& method);
// All ranks that cannot reach the store have the same error: one of them reports it.
bool is_client_reporter(const TorchEnv& env);

}  // namespace torchbridge::train
