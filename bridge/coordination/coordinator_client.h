// An agent's connection to the coordinator of its run.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bridge/coordination/agent_message.h"
#include "bridge/coordination/connection_proof.h"
#include "bridge/coordination/coordination_time.h"
#include "bridge/coordination/line_connection.h"

namespace torchbridge {

// Passive: its owner waits for descriptor() and next_deadline(), and calls carry(). Connects again
// where nothing listens yet. Resolves the host's name, and so may wait as long as the system's
// resolver does. One thread.
class CoordinatorClient {
 public:
  using Time = CoordinationTime;

  // Begins to connect; gives up at `deadline`. `is_first` false: the coordinator was there before,
  // so that a host where nothing listens ends it at once.
  CoordinatorClient(Endpoint coordinator, RunKey key, Join join, Time now, Time deadline,
                    bool is_first = true);

  int descriptor() const;        // -1 between two attempts
  std::uint32_t events() const;  // as of epoll and poll
  Time next_deadline() const;
  void carry(Time now);

  bool has_joined() const { return state_ == State::kJoined; }
  // Why there is no connection any more, once there is none.
  const std::optional<std::string>& failure() const { return failure_; }
  // Why the last attempt to join did not succeed; empty before the first one has ended.
  const std::string& problem() const { return problem_; }
  // Where the last attempt's connection was not accepted or not answered, and no coordinator was
  // there before: the host's address, once for each attempt; else empty.
  std::string take_unreached() { return std::exchange(unreached_, {}); }
  // Whether any connection was accepted.
  bool has_reached() const { return has_reached_; }
  // It was there, and is not any more.
  bool is_lost() const { return failure_.has_value() && was_joined_; }
  // By the coordinator, for a reason that does not pass.
  bool is_rejected() const { return is_rejected_; }
  // The coordinator has the run's token, or is on this host a program of this user or root: else it
  // is whatever program listens there. Of the last connection.
  bool knows_coordinator() const { return knows_coordinator_; }
  // Its host and port.
  std::string target() const { return coordinator_.host + ":" + std::to_string(coordinator_.port); }
  // The address of this host that the coordinator sees. REQUIRES: has_joined().
  const std::string& own_address() const { return own_address_; }

  // REQUIRES: has_joined(). Nothing where the connection is gone meanwhile.
  void send(const AgentMessage& message);
  // The agent needs it no more.
  void close() { fail("closed"); }
  std::vector<AgentMessage> take_messages() { return std::exchange(messages_, {}); }

 private:
  enum class State { kPausing, kConnecting, kGreeting, kProving, kJoining, kJoined, kFailed };
  bool is_connected() const { return state_ >= State::kGreeting && state_ <= State::kJoined; }
  void begin(Time now);
  void on_connected(Time now);
  void read(Time now);
  // A line before Welcome, and a message.
  void prove(const std::string& challenge, Time now);
  void join(const std::string& proof, Time now);
  void receive(const AgentMessage& message, Time now);
  void on_wrong_answer(Time now, const std::string& problem);
  void on_wrong_answer(Time now) { on_wrong_answer(now, target() + kNoCoordinator); }
  void try_again(const std::string& problem, Time now);
  void on_unreached(const std::string& problem, Time now);
  void fail(const std::string& problem);
  std::chrono::duration<double> keep_alive() const {
    return std::chrono::duration<double>(keep_alive_.keep_alive_interval) *
           keep_alive_.keep_alive_attempts;
  }
  static constexpr char kNoCoordinator[] =
      " does not answer as a coordinator of torchbridge run does: it may be a torchrun, or another "
      "program has the "
      "port: "
      "choose another with --rdzv-endpoint";

  Endpoint coordinator_;
  RunKey key_;
  Join join_;
  std::optional<ClientProof> proof_;  // of this connection
  Time deadline_;
  bool is_first_;
  State state_ = State::kPausing;
  std::optional<std::string> failure_;
  std::string problem_;  // of the last attempt
  bool was_joined_ = false;
  bool is_rejected_ = false;
  bool knows_coordinator_ = false;
  Time due_;  // of the state: the next attempt, the end of this one, or the end of the keep-alive
  std::chrono::milliseconds pause_{0};
  int wrong_answers_ = 0;
  std::optional<Time> rejected_until_;  // with a reason that may pass until then
  std::string rejection_;
  Socket connecting_;
  Endpoint connecting_to_;
  std::string unreached_;
  bool has_reached_ = false;
  LineConnection connection_;
  std::string own_address_;
  Welcome keep_alive_;
  std::vector<AgentMessage> messages_;
};

}  // namespace torchbridge
