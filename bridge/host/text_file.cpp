#include "bridge/host/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

Result<std::optional<std::string>> nothing_or_error(const std::string& path, int error) {
  if (is_missing(error)) return std::optional<std::string>();
  return Error{path + ": " + std::strerror(error)};
}

}  // namespace

bool is_missing(int error) {
  return error == ENOENT || error == ENOTDIR || error == ENODEV || error == ENXIO;
}

Result<std::optional<std::string>> read_text(const std::string& path, std::size_t limit) {
  // In a container whose image has a FIFO there, open() would wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return nothing_or_error(path, errno);
  std::string text;
  std::array<char, 4096> chunk;
  ssize_t count = 0;
  while (text.size() <= limit && (count = read(file, chunk.data(), chunk.size())) > 0) {
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  const int error = errno;
  close(file);
  if (count < 0) return nothing_or_error(path, error);
  if (text.size() > limit) return Error{formatted("{}: longer than {} bytes", path, limit)};
  while (text.ends_with('\n')) text.pop_back();
  return std::optional(std::move(text));
}

}  // namespace torchbridge
