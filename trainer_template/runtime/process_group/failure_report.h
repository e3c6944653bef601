// How the ranks of a broken group agree, through the store, on the one rank that reports what
// happened. What strangers write there may make a rank's line wrong, and let several ranks print
// one, but not none.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer_template/runtime/rendezvous/join_store.h"

namespace torchbridge::train {

struct BrokenGroup {
  c10d::Store& store;
  int rank = 0, world_size = 1;
  JoinResult join_result;
  std::string secret;                  // that the ranks alone have; empty: the group was not formed
  std::chrono::milliseconds waited{};  // since this rank's latest collective began
  int collectives = 0;                 // of the whole group, that this rank has begun
  bool in_subgroup = false;            // this rank's latest collective is that of a subgroup
  bool is_aborting = false;            // this rank, because others are lost or its backend failed
  bool has_own_error = false;          // by is_own_error()
  bool is_stuck = false;  // this rank's program has not come back, and the process ends without it
  c10d::ErrorType backend_error = c10d::ErrorType::SUCCESS;  // that made this rank abort the group
  std::set<std::string> interfaces;                          // on which that backend listens
  // From the heartbeat:
  std::vector<int> lost;  // ranks that are lost; also this rank, where the others found it so
  bool hung_up = false;   // they closed their connections, else they sent nothing in time
  std::vector<int> aborted_ranks;  // ranks that aborted the group before this one
  std::vector<int> closed;  // on rank 0: ranks that closed their connections without a last line
  std::chrono::milliseconds heartbeat_timeout{};
};

// Whether `error`, which ends this rank, is of the program or of this rank's GPU, and no
// consequence of a loss. Asked once, before the rank announces its failure: others abort because of
// that.
bool is_own_error(const BrokenGroup& group, const std::exception& error);

// The store over a connection of its own, because another thread may wait on the store's; null
// where it does not answer, which takes at most two seconds.
c10::intrusive_ptr<c10d::Store> own_store(const BrokenGroup& group);

// Before this rank aborts its connections, which may take seconds, so that no rank that has done so
// already takes it for lost or late. `error` is what ends this rank, null if that is not known yet.
void announce_failure(const BrokenGroup& group, const std::exception* error);

// Collective over the ranks that are left; takes milliseconds where rank 0 has the list of the
// others, else at most about two seconds. Returns the message that this rank reports, which names
// ranks and their nodes, or nothing where another rank reports.
std::optional<std::string> failure_message(const BrokenGroup& group, const std::exception& error);

// Once the message of failure_message() is printed: tells rank 0, which may serve the store that
// the others need, and on rank 0 waits for them; at most about three seconds.
void end_report(const BrokenGroup& group);

// "rank 1 on n0", "ranks 1,2 on n0, n1". Rank 0's host is known without the store, which may be
// lost with rank 0.
std::string with_hosts(const BrokenGroup& group, const std::vector<int>& ranks);

// On which interfaces this rank's NCCL listens; begins with a semicolon where that is known.
std::string interfaces_note(const BrokenGroup& group);

// The rank that reports such a loss.
int lowest_left(const std::vector<int>& lost);

// Of a loss that the heartbeat has found. `who` is "rank 2 on n1".
std::string lost_connection_error(const std::string& who);
std::string no_heartbeat_error(const std::string& who, std::chrono::milliseconds timeout);

// An error of the network or of another rank, not of this one.
bool is_lost_connection(const std::exception& error);

}  // namespace torchbridge::train
