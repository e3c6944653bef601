#include "bridge/coordination/line_connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace torchbridge {

LineConnection::LineConnection(Socket socket) : socket_(std::move(socket)) {
  fcntl(socket_.descriptor(), F_SETFL, fcntl(socket_.descriptor(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(socket_.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::uint32_t LineConnection::events() const {
  return static_cast<std::uint32_t>(EPOLLIN) | (has_unsent() ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
}

Result<std::vector<std::string>> LineConnection::receive(std::size_t longest) {
  std::string problem;
  char buffer[65536];
  for (;;) {
    const ssize_t size = recv(socket_.descriptor(), buffer, sizeof buffer, 0);
    if (size > 0) {
      received_.append(buffer, static_cast<std::size_t>(size));
      if (received_.size() > longest) break;
    } else if (size == 0) {
      problem = "closed its connection";
      break;
    } else if (errno != EINTR) {
      if (errno != EAGAIN) problem = std::string("lost its connection: ") + std::strerror(errno);
      break;
    }
  }
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (auto end = received_.find('\n'); end != received_.npos; end = received_.find('\n', begin)) {
    lines.push_back(received_.substr(begin, end - begin));
    begin = end + 1;
  }
  received_.erase(0, begin);
  if (lines.empty() && received_.size() > longest)
    return Error{"sent a line of more than " + std::to_string(longest) + " bytes"};
  if (lines.empty() && !problem.empty()) return Error{problem};
  return lines;
}

void LineConnection::send(std::string_view lines) {
  unsent_ += lines;
  flush();
}

void LineConnection::flush() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t size = ::send(socket_.descriptor(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      if (errno != EAGAIN) sent = unsent_.size();  // the next receive() has the error
      break;
    }
    sent += static_cast<std::size_t>(size);
  }
  unsent_.erase(0, sent);
}

}  // namespace torchbridge
