// How the ranks that have reached one store find out whether all of them joined.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/launch/launch.h"

namespace torchbridge::train {

// The GPU that NCCL will use, which rejects two ranks on one.
struct NcclGpu {
  std::string name;     // with its host; empty: there is none, or ranks may share it
  std::string boot_id;  // of the host, as two may have one name
};

struct JoinRequest {
  InitMethod method;
  c10::intrusive_ptr<c10d::Store> store;  // of the program, of method kStore
  std::string group_name;
  std::chrono::milliseconds timeout{};  // until all ranks have joined
  // A process that serves the store and answers no request for so long is stopped.
  std::chrono::milliseconds answer_timeout = std::chrono::seconds(10);
  std::string backend;
  NcclGpu nccl_gpu;
  // Why this rank cannot take part. Where several ranks have the same error, one of them throws it.
  std::optional<std::string> local_error;
};

// What every rank keeps of the others in case the store is lost with rank 0.
struct JoinResult {
  std::string rank_0_host;
  std::string reporter_host;  // of the rank that reports the loss of rank 0: another node's, where
                              // there are several
  std::optional<Endpoint> served_by_rank_0;  // the store, at a numeric address
};

// The first half of joining: each rank claims its number, and waits until rank 0 has done so.
// Throws TrainError for a number that is taken, another world size than rank 0's, or a rank 0 that
// does not come within `timeout`.
void claim_rank(c10d::Store& store, const Launch& launch, const JoinRequest& request);

// Collective, the second half: rank 0 waits for all ranks, for `timeout`, and sets a verdict that
// all wait for. Throws TrainError on one rank, which names the missing ranks with their nodes, or
// another error; PeerFailed on the others. Leaves served_by_rank_0 empty.
JoinResult join_ranks(c10d::Store& store, const Launch& launch, const JoinRequest& request);

// For messages: "10.77.0.1 port 29500", or the name of the file.
std::string store_location(const Endpoint& endpoint, const InitMethod& method);

}  // namespace torchbridge::train
