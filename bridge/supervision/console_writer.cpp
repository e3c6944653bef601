#include "bridge/supervision/console_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace torchbridge {
namespace {

bool may_wait(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || isatty(descriptor);
}

}  // namespace

ConsoleWriter::ConsoleWriter(int descriptor) : inherited_(descriptor), is_terminal_(isatty(descriptor) != 0) {
  if (!may_wait(descriptor)) return;
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  reopened_ = Socket(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

void ConsoleWriter::add(std::string_view lines) {
  pending_.append(lines);
  constexpr std::size_t kWorthWriting = 1 << 16;
  if (pending_.size() - written_ >= kWorthWriting) flush();
}

void ConsoleWriter::flush() {
  while (has_pending()) {
    const ssize_t count = write(descriptor(), pending_.data() + written_, pending_.size() - written_);
    if (count > 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      break;
    } else {
      written_ = pending_.size();  // the reader is gone, or the disk is full: the rest cannot be written
    }
  }
  if (!has_pending() || written_ > kFull) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace torchbridge
