// How the ranks of a job reach one store.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/launch/launch.h"
#include "trainer_template/runtime/rendezvous/join_ranks.h"

namespace torchbridge::train {

struct JoinedStore {
  c10::intrusive_ptr<c10d::Store> store;     // its keys begin with the run and its attempt
  std::string own_address;                   // numeric; the other ranks reach this one by it
  std::optional<Endpoint> served_by_rank_0;  // at a numeric address
};

// Rank 0 serves the store, unless an agent does, on the socket of the launch or on one that it
// binds; the others wait for it. With one rank it is a store within the process; with file:// it is
// that file, which the last rank to leave removes. Throws TrainError, which names address, port and
// variable; PeerFailed where another rank reports the error. Ends the process, with an error, where
// rank 0 answers nothing for request.answer_timeout. claim_rank() and join_ranks() follow.
JoinedStore join_store(Launch& launch, const JoinRequest& request);

// How long the three take together at most, unless the process that serves the store is stopped:
// libtorch 2.11 waits for its answer without a timeout.
std::chrono::milliseconds longest_join(std::chrono::milliseconds timeout);
// Reports a store whose process does not answer; one of the ranks does. For AbortWatchdog:
// libtorch's waits cannot be interrupted.
void report_no_answer(const TorchEnv& env, const InitMethod& method);

}  // namespace torchbridge::train
