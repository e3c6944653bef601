// Writes to standard output or error without waiting for its reader.
#pragma once

#include <poll.h>

#include <string>
#include <string_view>

#include "bridge/net/socket.h"

namespace torchbridge {

// A pipe or terminal is opened a second time to be written to without waiting, because O_NONBLOCK of the descriptor
// that was inherited would change it for other programs too; files and what cannot be opened so are written to
// directly.
class ConsoleWriter {
 public:
  explicit ConsoleWriter(int descriptor);

  // A whole line, or several; what does not fit now is written by flush().
  void add(std::string_view lines);
  // As much as the reader takes.
  void flush();
  bool has_pending() const { return written_ < pending_.size(); }
  // True where so much is pending that the workers' pipes should wait.
  bool is_full() const { return pending_.size() - written_ > kFull; }
  // Of the descriptor, for poll: POLLOUT where something is pending.
  pollfd poll_entry() const { return {descriptor(), static_cast<short>(has_pending() ? POLLOUT : 0), 0}; }
  bool is_terminal() const { return is_terminal_; }

 private:
  static constexpr std::size_t kFull = 1 << 20;
  int descriptor() const { return reopened_.open() ? reopened_.descriptor() : inherited_; }

  int inherited_;
  Socket reopened_;
  bool is_terminal_ = false;
  std::string pending_;
  std::size_t written_ = 0;  // of pending_
};

}  // namespace torchbridge
