// A connection over which whole lines are sent and received, without waiting.
#pragma once

#include <sys/epoll.h>

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

class LineConnection {
 public:
  LineConnection() = default;
  // Takes over a connected stream socket, and sets O_NONBLOCK and TCP_NODELAY.
  explicit LineConnection(Socket socket);

  bool open() const { return socket_.open(); }
  int descriptor() const { return socket_.descriptor(); }
  // What to wait for: EPOLLIN, and EPOLLOUT while a line is not sent whole.
  std::uint32_t events() const;

  // Lines that have come, without their newlines. An error where the other side has closed the connection or it is
  // broken, after the lines before it were given; and for a line of more than `longest` bytes.
  Result<std::vector<std::string>> receive(std::size_t longest);
  // What has come of a line that is not complete.
  std::string_view unfinished() const { return received_; }
  // Text that ends with a newline; sent as far as the socket takes it, the rest by flush().
  void send(std::string_view lines);
  void flush();
  bool has_unsent() const { return !unsent_.empty(); }

 private:
  Socket socket_;
  std::string received_, unsent_;
};

inline constexpr std::size_t kLongestLine = 64 << 20;       // of a member
inline constexpr std::size_t kLongestFirstLine = 64 << 10;  // before Join

}  // namespace torchbridge
