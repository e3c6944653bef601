// The nodes of a step report to srun why the step must end, and which of its tasks ended first.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bridge/net/socket.h"

namespace torchbridge {

// Where srun's side of the plugin listens.
struct FailureListenerAddress {
  std::string host;  // numeric
  int port = 0;      // 0: srun does not listen
  std::string key;   // report_key() of the step
};

// The key by which reports prove that they are of the step whose tasks have this secret.
std::string report_key(const std::string& secret);

struct StepReport {
  enum class Kind : char {
    kTaskFailed = 'f',  // the first task of this node that failed: the others may wait for it
    // A task asked to be requeued: others may still be saving, and nothing is printed.
    kTaskAsksForRequeue = 'q',
    kTaskEnded = 't',  // the first task of this node that was asked to end, or an agent: others may
                       // still be saving
    // A task has been stopped for on_failure since it started: the others wait for it.
    kTaskHangs = 'h',
    kStepMustEnd = 's',  // the environment of a task cannot be completed
  };
  Kind kind = Kind::kTaskEnded;
  std::chrono::system_clock::time_point time;
  std::string text;

  static constexpr std::size_t kMaxText = 1 << 16;  // bytes; a longer text is truncated
};

// Called on a node. Takes less than four seconds. False where srun has not accepted the report.
bool send_report(const FailureListenerAddress& listener, const StepReport& report);

// What Slurm does with the step.
enum class StepState { kRuns, kIsSuspended, kEnds };

// What srun does about reports.
struct StepActions {
  std::function<void(const std::string&)> log;
  std::function<void()> end_step;
  // How long the step may run on after a kTaskFailed report, or after the stop that a kTaskHangs
  // report names; nothing: it is not ended.
  std::optional<std::chrono::milliseconds> time_after_failure;
  // The same where tasks may still be saving, if that is longer.
  std::chrono::milliseconds while_saving{};
  // Called when the time is over, before end_step and in the same thread. A step that Slurm ends
  // anyway is left to it; one that is suspended is asked about again later, unless no task has
  // failed and the reason is a task that is stopped, as all are then: that report is forgotten.
  std::function<StepState()> state;
};

// Runs in srun. Accepts reports with a proof, HMAC-SHA256 of what follows it. The same report has
// no further effect when it is sent again, as by who has read it on its way: also not a kTaskHangs
// that was forgotten. Closes each connection after at most a second.
class FailureListener {
 public:
  // Listens on all addresses of this host, because only Slurm's configuration shows by which one
  // the nodes reach it; on a port of [low, high], or on any port where they are 0. Null on any
  // error.
  static std::unique_ptr<FailureListener> open(std::string key, int low = 0, int high = 0);
  ~FailureListener();

  int port() const { return port_; }

  // Starts a thread that accepts reports and blocks all signals; a second call does nothing. The
  // step is ended once, in another thread: after the first kStepMustEnd report, whose text is
  // logged, or when the time after the first kTaskFailed or kTaskHangs report is over. Then the
  // earliest failure, or else the task that hangs, is logged, with the reason of the end. That time
  // is `while_saving` where a kTaskEnded or kTaskAsksForRequeue report comes too: a task that Slurm
  // ends by SIGTERM may make others fail, while further ones save. Throws where no thread can be
  // started. A child that srun forks must not destroy this object.
  void start(StepActions actions);

  // Accepts reports that are being sent, for less than half a second, then joins the threads, also
  // that of end_step. Returns the text of the task end that is earliest by the nodes' clocks;
  // nothing where none was reported, where it is logged already, or after a kStepMustEnd report.
  std::optional<std::string> stop();
  // After stop(): whether a task's end was reported, or the step was ended because of a report.
  bool has_reports() const { return first_ || step_must_end_ || is_logged_; }

 private:
  struct Connection;

  void serve();
  void accept_connections(std::vector<Connection>& connections);
  // Reads what has arrived. False where the connection is finished.
  bool receive(Connection& connection);
  // False where the message is not a report.
  bool take_report(std::string_view message);
  // False for one that was taken before.
  bool is_new_hang(std::string_view proof);
  // Once ender_ is done with it, and has not ended the step.
  void forget_hang();
  // How long after the first failure the step is ended. REQUIRES: actions_.time_after_failure
  std::chrono::milliseconds limit_of_failure() const;
  // When the step is to be ended because of a task that failed or hangs; nothing while that is not
  // foreseen.
  std::optional<std::chrono::steady_clock::time_point> failure_deadline() const;
  // In a thread of its own, with the earliest report.
  void end_after_failure(const StepReport& report, std::chrono::milliseconds limit,
                         bool has_failure);

  Socket socket_, wake_;
  int port_ = 0;
  std::string key_;
  StepActions actions_;
  std::thread server_, ender_;
  std::optional<StepReport> first_, hang_;
  std::optional<std::chrono::steady_clock::time_point> failed_at_;
  std::chrono::steady_clock::time_point hang_taken_at_;
  std::set<std::string> hangs_;  // the proofs of all kTaskHangs
  bool step_must_end_ = false, may_save_ = false, is_logged_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> has_forgotten_hang_ = false;  // ender_ is done, and has not ended the step
};

}  // namespace torchbridge
