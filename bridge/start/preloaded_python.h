// A Python that has imported modules, and of which the workers are forks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bridge/net/socket.h"
#include "bridge/start/process.h"

namespace torchbridge {

// preload.py, which runs in it.
extern const char kPreloadProgram[];

// Passive, as WorkerGroup: whoever owns it waits for descriptor() or next_deadline(), and calls
// carry() then. It is started again where it ends or does not answer, and where a file of its
// modules has changed; workers are started by themselves where they cannot be its forks.
class PreloadedPython {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // `spec` is that of a worker, with its command for Python, and an environment of what all workers
  // have. Starts it. REQUIRES: this process is a subreaper (PR_SET_CHILD_SUBREAPER), and has one
  // thread, as for start_process.
  PreloadedPython(std::vector<std::string> modules, ProcessSpec spec);
  ~PreloadedPython();  // ends it
  PreloadedPython(const PreloadedPython&) = delete;

  // Asks whether it is ready to be forked: its modules are imported, and as they are in their
  // files. Before each attempt, for the answer of the one before may be old.
  void ask();
  bool is_asked() const { return state_ == State::kAsked; }  // and has not answered
  // Takes an answer, or that it has ended or been silent for too long. Does not wait.
  void carry();
  Deadline next_deadline() const { return deadline_; }  // max(): none
  int descriptor() const {
    return channel_.descriptor();
  }                                   // readable where carry() has work to do; -1: never
  pid_t pid() const { return pid_; }  // 0: it does not run

  // No attempt follows: none is started where it ends.
  void stop();

  // A line for the user on what has happened since the last call, or empty.
  std::string take_message() { return std::exchange(message_, {}); }

  // A fork of it, with the same result as start_process; or, where it is not ready, start_process.
  std::variant<pid_t, StartFailure> start(const ProcessSpec& spec);

 private:
  enum class State { kAsked, kReady, kIdle, kOff };
  void run();
  bool take_answer(std::string_view answer);
  void begin_again(std::string_view answer, bool is_stuck);
  std::string end();
  void give_up(const std::string& reason);
  std::optional<pid_t> fork(const ProcessSpec& spec) const;

  std::vector<std::string> modules_;
  ProcessSpec spec_;
  Socket channel_;
  pid_t pid_ = 0;
  State state_ = State::kIdle;
  bool is_serving_ = false;              // its modules are imported
  Deadline deadline_ = Deadline::max();  // for its next message
  bool has_served_ = false;              // with the modules as they are
  int ends_ = 0;  // in a row, before it was ready or, between attempts, serving
  std::string message_;
};

}  // namespace torchbridge
