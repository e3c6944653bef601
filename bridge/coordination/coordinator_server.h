// The sockets of a coordinator: agents connect to it, and it notices those that are gone.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bridge/coordination/connection_proof.h"
#include "bridge/coordination/coordinator.h"
#include "bridge/coordination/line_connection.h"

namespace torchbridge {

// Passive: its owner waits for descriptor() and next_deadline(), and calls carry(). Who connects
// gets a challenge, and no answer until it has proven that it has the key of the run
// (connection_proof.h): else it is closed, and so is one that has not joined within kProofDeadline,
// whatever it sends. Of more than kMostStrangers, beside one for each node, the oldest is closed:
// an agent proves that it belongs to the run at once. A member that sends nothing for
// keep_alive_attempts intervals is lost. One thread.
class CoordinatorServer {
 public:
  using Time = CoordinationTime;

  // `listener` listens. An error where a descriptor cannot be opened.
  static Result<CoordinatorServer> open(Socket listener, RunKey key, Coordinator coordinator);

  int descriptor() const { return epoll_.descriptor(); }
  Time next_deadline() const;
  void carry(Time now);

  void stop(int signal, Time now);
  void fail(const std::string& reason, Time now);
  void hold() { coordinator_.hold(); }
  // Members are still connected, which have not all read the end of the run.
  bool has_members() const { return peers_.size() > strangers_.size(); }
  // How often since the end of the run each member that is still connected has sent nothing for as
  // long as one that is lost; 0 where one has sent something since, or there is none.
  int silences_of_members() const;
  const Coordinator& coordinator() const { return coordinator_; }
  std::vector<std::string> take_lines();  // for the user; each is given once

 private:
  struct AgentConnection {
    explicit AgentConnection(std::string nonce) : proof(std::move(nonce)) {}

    LineConnection connection;
    std::string address;
    ServerProof proof;
    bool has_proven = false;  // that it has the key
    bool has_joined = false;
    bool is_closing = false;  // in closing_
    int silences = 0;         // since the end of the run, and the last message
    Time accepted, last_heard, last_sent;
    double clock_error = 1e9;  // seconds
  };

  CoordinatorServer(Socket listener, Socket epoll, RunKey key, Coordinator coordinator);
  void accept_some(Time now);
  void pause_accepting(int error, Time now);
  void watch_listener(bool accepts) const;
  void read(MemberId id, Time now);
  bool is_torchrun(const AgentConnection& peer);
  // False where the line is no proof.
  bool prove(MemberId id, AgentConnection& peer, const std::string& line, Time now);
  void receive(MemberId id, AgentConnection& peer, const AgentMessage& message, Time now);
  void sweep(Time now);
  Time lost_at(const AgentConnection& peer) const;
  void send_outgoing(Time now);
  void deliver(Time now);  // and closes the connections that have got their last message
  void send(MemberId id, const AgentMessage& message, Time now);
  void close_when_sent(MemberId id);
  void close(MemberId id, const std::string& how, Time now,
             Coordinator::HowLost how_lost = Coordinator::HowLost::kClosed);
  void watch(MemberId id, const AgentConnection& peer, int operation) const;

  Socket listener_, epoll_;
  RunKey key_;
  Coordinator coordinator_;
  Welcome keep_alive_;
  std::size_t most_strangers_;
  std::map<MemberId, AgentConnection> peers_;
  std::deque<MemberId> strangers_;  // of peers_, that have not joined: the oldest is the first
  MemberId last_id_ = 0;
  std::vector<MemberId> closing_;
  std::vector<std::string> lines_;
  Time next_sweep_ = Time::max();
  // Addresses that the user has been told of.
  std::set<std::string> of_torchrun_, with_other_key_, of_other_users_;
  bool is_short_ = false;  // of descriptors or memory, now or before
};

inline constexpr int kMostStrangers = 256;
inline constexpr std::chrono::milliseconds kProofDeadline{5000};  // from accept

}  // namespace torchbridge
