// Writes to standard output or error without waiting for its reader.
#pragma once

#include <poll.h>

#include <string>
#include <string_view>

#include "bridge/net/socket.h"

namespace torchbridge {

// A pipe or terminal is opened a second time to be written to without waiting, because O_NONBLOCK
// of the descriptor that was inherited would change it for other programs too. One that cannot be
// opened, as another user's pipe, is written to in small parts while it has room, and files
// directly.
class ConsoleWriter {
 public:
  explicit ConsoleWriter(int descriptor);

  // A whole line, or several; what does not fit now is written by flush().
  void add(std::string_view lines);
  // As much as the reader takes.
  void flush();
  bool has_pending() const { return pending() > 0; }
  std::size_t pending() const { return pending_.size() - written_; }  // bytes
  // True where so much is pending that the workers' pipes should wait.
  bool is_full() const { return pending() > kFull; }
  // Of the descriptor, for poll: POLLOUT where something is pending.
  pollfd poll_entry() const {
    return {descriptor(), static_cast<short>(has_pending() ? POLLOUT : 0), 0};
  }
  bool is_terminal() const { return is_terminal_; }

 private:
  static constexpr std::size_t kFull = 1 << 20;
  enum class Kind { kFile, kReopened, kSocket, kPolled };
  ssize_t write_some() const;  // as write()
  int descriptor() const { return reopened_.open() ? reopened_.descriptor() : inherited_; }

  int inherited_;
  Kind kind_ = Kind::kFile;
  Socket reopened_;
  bool is_terminal_ = false;
  std::string pending_;
  std::size_t written_ = 0;  // of pending_
};

// A line on standard error, or as much of it as the reader takes at once.
void print_without_waiting(const std::string& line);

}  // namespace torchbridge
