#include "bridge/supervision/console_writer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace torchbridge {
ConsoleWriter::ConsoleWriter(int descriptor)
    : inherited_(descriptor), is_terminal_(isatty(descriptor) != 0) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) kind_ = Kind::kSocket;
  if (!S_ISFIFO(status.st_mode) && !is_terminal_) return;
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  reopened_ = Socket(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  kind_ = reopened_.open() ? Kind::kReopened : Kind::kPolled;
}

ssize_t ConsoleWriter::write_some() const {
  const char* const bytes = pending_.data() + written_;
  if (kind_ == Kind::kSocket)
    return send(inherited_, bytes, pending(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ != Kind::kPolled) return write(descriptor(), bytes, pending());
  pollfd ready{inherited_, POLLOUT, 0};
  if (poll(&ready, 1, 0) == 0) return errno = EAGAIN, -1;
  // It has room for that.
  return write(inherited_, bytes, std::min<std::size_t>(pending(), _POSIX_PIPE_BUF));
}

void ConsoleWriter::add(std::string_view lines) {
  pending_.append(lines);
  constexpr std::size_t kWorthWriting = 1 << 16;
  if (pending() >= kWorthWriting) flush();
}

void ConsoleWriter::flush() {
  while (has_pending()) {
    const ssize_t count = write_some();
    if (count > 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      break;
    } else {
      // The reader is gone, or the disk is full: the rest cannot be written.
      written_ = pending_.size();
    }
  }
  if (!has_pending() || written_ > kFull) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

void print_without_waiting(const std::string& line) {
  ConsoleWriter console(STDERR_FILENO);
  console.add(line + "\n");
  console.flush();
}

}  // namespace torchbridge
