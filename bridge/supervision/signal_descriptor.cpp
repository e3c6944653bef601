#include "bridge/supervision/signal_descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bridge/base/message_text.h"
#include "bridge/base/signal_names.h"

namespace torchbridge {

Result<SignalDescriptor> SignalDescriptor::open(const std::vector<int>& signals) {
  sigset_t set, outer;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  Socket socket(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!socket.open()) {
    return Error{
        formatted("cannot open a descriptor for signals: {}{}", std::strerror(errno),
                  errno == EMFILE ? ": allow this process more open files (ulimit -n)" : "")};
  }
  sigaddset(&set, SIGPIPE);  // a reader of our output that has ended is an error of write
  pthread_sigmask(SIG_BLOCK, &set, &outer);
  return SignalDescriptor(std::move(socket), outer);
}

SignalDescriptor::~SignalDescriptor() {
  if (!socket_.open() || is_kept_) return;
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec now{};
  while (sigtimedwait(&pipe, nullptr, &now) > 0) {  // one that came would end this process now
  }
  pthread_sigmask(SIG_SETMASK, &outer_, nullptr);
}

std::optional<signalfd_siginfo> SignalDescriptor::next() {
  signalfd_siginfo info;
  if (read(socket_.descriptor(), &info, sizeof info) != sizeof info) return std::nullopt;
  return info;
}

std::string signal_name(int signal) {
  const std::string_view name = signal_abbreviation(signal);
  return name.empty() ? formatted("signal {}", signal) : formatted("SIG{}", name);
}

}  // namespace torchbridge
