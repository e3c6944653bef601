// The nodes of a step report to srun why the step must end, and which of its tasks ended first.
#pragma once

#include <atomic>
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
    kTaskFailed = 'f',   // the first task of this node that failed: the others may wait for it
    kTaskStopped = 'q',  // a task asked to be requeued: the step is to run on, and nothing is printed
    kTaskEnded = 't',    // the same, but the step is to run on: Slurm may be ending it, or it can lose a task
    kStepMustEnd = 's',  // the environment of a task cannot be completed
  };
  Kind kind = Kind::kTaskEnded;
  std::chrono::system_clock::time_point time;
  std::string text;

  static constexpr std::size_t kMaxText = 1 << 16;  // bytes; a longer text is truncated
};

// Called on a node. Takes less than four seconds. False where srun has not accepted the report.
bool send_report(const FailureListenerAddress& listener, const Report& report);

// What srun does about reports.
struct StepActions {
  std::function<void(const std::string&)> log;
  std::function<void()> end_step;
  // How long the step may run on after a kTaskFailed report; nothing: it is not ended.
  std::optional<std::chrono::milliseconds> on_failure;
  // Whether Slurm ends the step anyway. Called when the time is over, before end_step and in the same thread.
  std::function<bool()> is_ending;
};

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

  // Starts a thread that accepts reports and blocks all signals; a second call does nothing. The step is ended once, in
  // another thread: after the first kStepMustEnd report, whose text is logged, or when the time after the first
  // kTaskFailed report is over. Then the earliest report is logged, with the reason of the end. No kTaskFailed report
  // ends a step of which a kTaskEnded one comes too: a task that Slurm ends by SIGTERM may make others fail, while
  // further ones save. Throws where no thread can be started. A child that srun forks must not destroy this object.
  void start(StepActions actions);

  // Accepts reports that are being sent, for less than half a second, then joins the threads, also that of end_step.
  // Returns the text of the task end that is earliest by the nodes' clocks; nothing where none was reported, where it
  // is logged already, or after a kStepMustEnd report.
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
  // When the step is to be ended because of a failed task; nothing while that is not foreseen.
  std::optional<std::chrono::steady_clock::time_point> failure_deadline() const;
  // In a thread of its own, with the earliest report.
  void end_after_failure(const std::string& report);

  Socket socket_, wake_;
  int port_ = 0;
  std::string token_;
  StepActions actions_;
  std::thread server_, ender_;
  std::optional<Report> first_;
  std::optional<std::chrono::steady_clock::time_point> failed_at_;
  bool step_must_end_ = false, must_run_on_ = false, is_logged_ = false;
  std::atomic<bool> is_stopping_ = false;
};

}  // namespace torchbridge
