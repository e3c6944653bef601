// The nodes of a step call the node of rank 0 before any program starts: proof that it is reachable, and a way to tell it
// what only they know. Plain TCP; call and answer carry the run's token, and anything else that connects or answers is ignored.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <torchbridge/core/endpoint.h>
#include <torchbridge/core/result.h>
#include <torchbridge/net/socket.h>

namespace torchbridge {

// What the callers hear when other nodes did not call.
inline constexpr char kRollIncomplete[] = "incomplete";

// Texts are at most this long.
inline constexpr std::size_t kMaxRollText = 16 * 1024;

using MeetingPlaces = std::function<std::vector<Endpoint>()>;

struct RollCall {
  std::string token;                       // the same on all nodes of one run, no blanks
  std::vector<std::string> nodes;          // names; node 0.. in their order; `master` is the one that takes the roll
  int master = 0;
  std::string what_master_is = "the node of rank 0";  // for messages
  std::chrono::milliseconds timeout{1000};
  std::chrono::milliseconds patience{30000};          // after this long it is told once
  std::function<void(const std::string&)> missing{};  // which nodes are still waited for; may be empty
  // Where the master listens if it cannot at its own place, numeric addresses; asked for when that place does not answer at once. May be empty.
  MeetingPlaces elsewhere{};
};

// On the master's side: at the first place of call.elsewhere that nobody has.
Result<Socket> listen_elsewhere(const RollCall& call);

// The master's side. Holds the callers' connections until they are answered; forgetting to answer hangs up on them.
class Roll {
 public:
  // Waits until all other nodes have called on `listener`, at most the timeout. The error names the nodes that did not; those
  // that did are answered kRollIncomplete.
  static Result<Roll> take(const Socket& listener, const RollCall& call);

  // What each node said; the master's own entry is empty.
  const std::vector<std::string>& texts() const { return texts_; }
  // Says the same to all of them.
  void answer(const std::string& text);

 private:
  std::vector<std::string> texts_;
  std::vector<Socket> callers_;
};

// The other nodes' side: says `text` as node number `node`, and returns the master's answer. `at` is a numeric address. Tries
// again while the master is neither there nor elsewhere, until the timeout; for the answer it waits somewhat longer than the master does
// for the last caller. The error says what stood in the way at `at`.
Result<std::string> answer_roll(const Endpoint& at, const RollCall& call, int node, const std::string& text);

}  // namespace torchbridge
