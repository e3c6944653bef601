// The sockets of a coordinator: agents connect to it, and it notices those that are gone.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "bridge/coordination/coordinator.h"
#include "bridge/coordination/line_connection.h"

namespace torchbridge {

// Passive: its owner waits for descriptor() and next_deadline(), and calls carry(). A connection that sends nothing is
// closed after kHelloDeadline. A member that sends nothing for keep_alive_attempts intervals is lost. One thread.
class CoordinatorServer {
 public:
  using Time = CoordinationTime;

  // `listener` listens. An error where a descriptor cannot be opened.
  static Result<CoordinatorServer> open(Socket listener, Coordinator coordinator);

  int descriptor() const { return epoll_.descriptor(); }
  Time next_deadline() const;
  void carry(Time now);

  void stop(int signal, Time now);
  void fail(const std::string& reason, Time now);
  void hold() { coordinator_.hold(); }
  // Members are still connected, which have not all read the end of the run.
  bool has_members() const { return members_ > 0; }
  const Coordinator& coordinator() const { return coordinator_; }
  std::vector<std::string> take_lines();  // for the user; each is given once

 private:
  struct AgentConnection {
    LineConnection connection;
    std::string address;
    bool has_joined = false;
    bool is_closing = false;  // in closing_
    Time last_heard, last_sent;
    double clock_error = 1e9;  // seconds
  };

  CoordinatorServer(Socket listener, Socket epoll, Coordinator coordinator);
  void accept_all(Time now);
  void pause_accepting(int error, Time now);
  void watch_listener(bool accepts) const;
  void read(MemberId id, Time now);
  void receive(MemberId id, AgentConnection& peer, const AgentMessage& message, Time now);
  void sweep(Time now);
  void send_outgoing(Time now);
  void deliver(Time now);  // and closes the connections that have got their last message
  void send(MemberId id, const AgentMessage& message, Time now);
  void close_when_sent(MemberId id);
  void close(MemberId id, const std::string& how, Time now);
  void watch(MemberId id, const AgentConnection& peer, int operation) const;

  Socket listener_, epoll_;
  Coordinator coordinator_;
  Welcome keep_alive_;
  std::map<MemberId, AgentConnection> peers_;
  MemberId next_id_ = 1;
  int members_ = 0;
  std::vector<MemberId> closing_;
  std::vector<std::string> lines_;
  Time next_sweep_ = Time::max();
  bool has_seen_torchrun_ = false;
  bool is_short_ = false;  // of descriptors or memory, now or before
};

inline constexpr std::chrono::seconds kHelloDeadline{10};

}  // namespace torchbridge
