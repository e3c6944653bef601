// What the nodes of a step report to srun: why the step must end, and which of its tasks ended first.
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
  int port = 0;      // 0: nowhere
  std::string token;
};

struct Report {
  enum class Kind : char {
    kTaskEnded = 't',    // the first task of this node that failed
    kStepMustEnd = 's',  // a task cannot be given its environment
  };
  Kind kind = Kind::kTaskEnded;
  std::chrono::system_clock::time_point time;
  std::string text;

  static constexpr std::size_t kMaxText = 1 << 16;  // what is beyond is left out
};

// A node's side. Waits less than four seconds. False where srun has not taken the report.
bool send_report(const FailureListenerAddress& reporter, const Report& report);

// srun's side. Who does not know the token, 128 random bits, is not listened to; nobody is for longer than a second.
class FailureListener {
 public:
  // Listens on all addresses of this host, for only Slurm knows by which one the nodes reach it; on a port of [low,
  // high], or any where they are 0. Null where that does not work.
  static std::unique_ptr<FailureListener> open(int low = 0, int high = 0);
  ~FailureListener();

  int port() const { return port_; }
  const std::string& token() const { return token_; }

  // Begins to take reports, in a thread that blocks all signals; does nothing the second time. For the first one that
  // says the step must end it calls `say` with the text, and then `end_step` in another thread. Throws where there
  // is no thread to be had. Children that srun forks must not destroy it.
  void start(std::function<void(const std::string&)> say, std::function<void()> end_step);

  // Takes the reports that are under way, for less than half a second, and ends the threads; waits for end_step.
  // Returns the text of the earliest end of a task by the nodes' clocks; nothing where none was reported, or where the
  // step was to end.
  std::optional<std::string> stop();

 private:
  struct Connection;

  void serve();
  void take_new(std::vector<Connection>& connections);
  // False where there is nothing more to come.
  bool receive(Connection& connection);
  // False where it is none.
  bool heed(const std::string& message);

  Socket listener_, wake_;
  int port_ = 0;
  std::string token_;
  std::function<void(const std::string&)> say_;
  std::function<void()> end_step_;
  std::thread server_, ender_;
  std::optional<Report> first_;
  bool step_must_end_ = false;
};

}  // namespace torchbridge
