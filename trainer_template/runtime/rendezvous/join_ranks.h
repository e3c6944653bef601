// How ranks that have come to one store find out whether all of them came.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/launch/launch.h"

namespace torchbridge::train {

struct JoinRequest {
  InitMethod method;
  c10::intrusive_ptr<c10d::Store> store;  // of the program, of method kStore
  std::string group_name;
  std::chrono::milliseconds patience{};
  std::string backend;
  std::optional<std::string>
      trouble;  // why this rank cannot take part: where several say the same, one of them throws it
};

// What every rank knows of the others in case the store goes with rank 0.
struct JoinResult {
  std::string first_host;     // rank 0's
  std::string speaking_host;  // speaks of a rank 0 that is gone: of another node, where there are several
  std::optional<Endpoint> served_by_rank_0;  // the store, at a numeric address
};

// Collective. Each claims its rank; rank 0 waits for all, for `patience`, and gives a verdict that all wait for. Throws
// TrainError on one rank, which names the ranks that are missing with their nodes, or what else is wrong; PeerFailed on
// the others. Leaves served_by_rank_0 empty.
JoinResult join_ranks(c10d::Store& store, const Launch& launch, const JoinRequest& request);

// "10.77.0.1 port 29500", or the name of the file.
std::string where(const Endpoint& endpoint, const InitMethod& method);

}  // namespace torchbridge::train
