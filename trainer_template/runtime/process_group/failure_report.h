// What the ranks tell each other, through the store, when their group breaks: so that one of them tells the user what
// happened.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer_template/runtime/rendezvous/join_store.h"

namespace torchbridge::train {

struct BrokenGroup {
  c10d::Store& store;
  int rank = 0, world_size = 1;
  JoinResult join_result;
  std::chrono::milliseconds waited{};  // since this rank's latest collective began
  // What the heartbeat found, if anything: who is lost, this rank too where the others gave it up, and who ended before
  // this one.
  std::vector<int> lost;
  bool hung_up = false;
  std::vector<int> aborted_ranks;
  std::chrono::milliseconds heartbeat_timeout{};
};

// Collective as far as ranks are left. The message of this rank, or nothing where another one speaks. At most about two
// seconds. It names ranks and their nodes.
std::optional<std::string> failure_message(const BrokenGroup& group, const std::exception& error);

// An error of the network or of another rank, not of this one.
bool is_lost_connection(const std::exception& error);

}  // namespace torchbridge::train
