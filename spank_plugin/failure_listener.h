// The nodes of a step report to srun why the step must end, and which of its tasks ended first.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bridge/net/socket.h"

namespace torchbridge {

// Where srun's side of the plugin listens.
struct FailureListenerAddress {
  std::string host;  // numeric
  int port = 0;      // 0: srun does not listen
  std::string token;
};

struct Report {
  enum class Kind : char {
    kTaskEnded = 't',    // the first task of this node that failed
    kStepMustEnd = 's',  // the environment of a task cannot be completed
  };
  Kind kind = Kind::kTaskEnded;
  std::chrono::system_clock::time_point time;
  std::string text;

  static constexpr std::size_t kMaxText = 1 << 16;  // bytes; a longer text is truncated
};

// Called on a node. Takes less than four seconds. False where srun has not accepted the report.
bool send_report(const FailureListenerAddress& listener, const Report& report);

// Runs in srun. Accepts reports from processes that send the token, 128 random bits; closes each connection after at
// most a second.
class FailureListener {
 public:
  // Listens on all addresses of this host, because only Slurm's configuration shows by which one the nodes reach it; on
  // a port of [low, high], or on any port where they are 0. Null on any error.
  static std::unique_ptr<FailureListener> open(int low = 0, int high = 0);
  ~FailureListener();

  int port() const { return port_; }
  const std::string& token() const { return token_; }

  // Starts a thread that accepts reports and blocks all signals; a second call does nothing. The first kStepMustEnd
  // report is passed to `log`, and `end_step` is called in another thread. Throws where no thread can be started. A
  // child that srun forks must not destroy this object.
  void start(std::function<void(const std::string&)> log, std::function<void()> end_step);

  // Accepts reports that are being sent, for less than half a second, then joins the threads, also that of end_step.
  // Returns the text of the task end that is earliest by the nodes' clocks; nothing where none was reported, or after a
  // kStepMustEnd report.
  std::optional<std::string> stop();
  // After stop(): whether any report was accepted.
  bool has_reports() const { return first_ || step_must_end_; }

 private:
  struct Connection;

  void serve();
  void accept_connections(std::vector<Connection>& connections);
  // Reads what has arrived. False where the connection is finished.
  bool receive(Connection& connection);
  // False where the message is not a report.
  bool take_report(const std::string& message);

  Socket socket_, wake_;
  int port_ = 0;
  std::string token_;
  std::function<void(const std::string&)> log_;
  std::function<void()> end_step_;
  std::thread server_, ender_;
  std::optional<Report> first_;
  bool step_must_end_ = false;
};

}  // namespace torchbridge
