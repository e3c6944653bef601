// A connection over which whole lines are sent and received, without waiting.
#pragma once

#include <sys/epoll.h>

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// Bytes that wait for a peer that does not read.
inline constexpr std::size_t kMostUnsent = 16 << 20;

class LineConnection {
 public:
  LineConnection() = default;
  // Takes over a connected stream socket, and sets O_NONBLOCK and TCP_NODELAY.
  explicit LineConnection(Socket socket);

  bool open() const { return socket_.open(); }
  int descriptor() const { return socket_.descriptor(); }
  // What to wait for: EPOLLIN, and EPOLLOUT while a line is not sent whole.
  std::uint32_t events() const;

  // Lines that have come, without their newlines. An error where the other side has closed the
  // connection or it is broken, after the lines before it were given; for a line of more than
  // `longest` bytes, of which no more are kept; and where the other side does not read. The work is
  // linear in what has come.
  Result<std::vector<std::string>> receive(std::size_t longest);
  // What has come of a line that is not complete.
  std::string_view unfinished() const { return received_; }
  // Text that ends with a newline; sent as far as the socket takes it, the rest by flush(). Of more
  // than kMostUnsent bytes that wait nothing is sent: the next receive() has the error.
  void send(std::string_view lines);
  void flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }

 private:
  // The complete lines of received_, which keeps the rest.
  std::vector<std::string> take_lines();

  Socket socket_;
  std::string received_, unsent_;
  std::size_t searched_ = 0;  // bytes of received_ that have no newline
  std::size_t sent_ = 0;      // bytes of unsent_ that are
  bool is_unread_ = false;
};

}  // namespace torchbridge
