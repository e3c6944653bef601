// Signals of this process, read from a descriptor instead of by handlers.
#pragma once

#include <sys/signalfd.h>

#include <csignal>
#include <optional>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// While it lives the signals, and SIGPIPE, are blocked in the calling thread and are read here;
// dispositions stay as they are, so that a child inherits those that were ignored (nohup). One at a
// time in a process of one thread.
class SignalDescriptor {
 public:
  static Result<SignalDescriptor> open(const std::vector<int>& signals);
  SignalDescriptor(SignalDescriptor&& other) noexcept = default;
  SignalDescriptor& operator=(SignalDescriptor&&) = delete;
  ~SignalDescriptor();

  int descriptor() const { return socket_.descriptor(); }  // readable when a signal is there
  std::optional<signalfd_siginfo> next();                  // does not wait
  void keep_blocked() { is_kept_ = true; }  // also afterwards: the process is about to end
  const sigset_t& outer_mask() const { return outer_; }  // before it was opened: for children

 private:
  SignalDescriptor(Socket socket, const sigset_t& outer)
      : socket_(std::move(socket)), outer_(outer) {}
  Socket socket_;
  sigset_t outer_;
  bool is_kept_ = false;
};

// "SIGTERM" for 15, and "signal 35" for one without a name.
std::string signal_name(int signal);

}  // namespace torchbridge
