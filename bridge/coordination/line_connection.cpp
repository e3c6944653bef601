#include "bridge/coordination/line_connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bridge/base/message_text.h"

namespace torchbridge {

LineConnection::LineConnection(Socket socket) : socket_(std::move(socket)) {
  fcntl(socket_.descriptor(), F_SETFL, fcntl(socket_.descriptor(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(socket_.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::uint32_t LineConnection::events() const {
  return static_cast<std::uint32_t>(EPOLLIN) |
         (has_unsent() ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
}

Result<std::vector<std::string>> LineConnection::receive(std::size_t longest) {
  if (is_unread_) return Error{"does not read what is sent to it"};
  std::string problem;
  char buffer[65536];
  while (received_.size() <= longest) {
    const std::size_t wanted = std::min(sizeof buffer, longest + 1 - received_.size());
    const ssize_t size = recv(socket_.descriptor(), buffer, wanted, 0);
    if (size > 0) {
      received_.append(buffer, static_cast<std::size_t>(size));
    } else if (size == 0) {
      problem = "closed its connection";
      break;
    } else if (errno != EINTR) {
      if (errno != EAGAIN) problem = formatted("lost its connection: {}", std::strerror(errno));
      break;
    }
  }
  auto lines = take_lines();
  if (lines.empty() && received_.size() > longest)
    return Error{formatted("sent a line of more than {} bytes", longest)};
  if (lines.empty() && !problem.empty()) return Error{problem};
  return lines;
}

std::vector<std::string> LineConnection::take_lines() {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (auto end = received_.find('\n', searched_); end != received_.npos;
       end = received_.find('\n', begin)) {
    lines.push_back(received_.substr(begin, end - begin));
    begin = end + 1;
  }
  received_.erase(0, begin);
  searched_ = received_.size();
  return lines;
}

void LineConnection::send(std::string_view lines) {
  is_unread_ = is_unread_ || unsent_.size() - sent_ + lines.size() > kMostUnsent;
  if (is_unread_) return;
  unsent_ += lines;
  flush();
}

void LineConnection::flush() {
  while (sent_ < unsent_.size()) {
    const ssize_t size =
        ::send(socket_.descriptor(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      if (errno != EAGAIN) sent_ = unsent_.size();  // the next receive() has the error
      break;
    }
    sent_ += static_cast<std::size_t>(size);
  }
  // Not each time: the rest may be long.
  if (sent_ <= unsent_.size() / 2) return;
  unsent_.erase(0, sent_);
  sent_ = 0;
}

}  // namespace torchbridge
