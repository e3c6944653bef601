#include "bridge/host/text_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "bridge/base/env_map.h"
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

Error in_file(const std::string& path, const Error& error) {
  return Error{path + ": " + error.message};
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  std::vector<std::string> names;
  if (!entries && is_missing(errno)) return names;
  if (!entries) return in_file(folder, {std::strerror(errno)});
  while (const dirent* entry = readdir(entries.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int> numbered(std::string_view name, std::string_view prefix) {
  constexpr int kMaxNumber = 65535;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto number = parse_integer(name.substr(prefix.size()), 0, kMaxNumber);
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

}  // namespace torchbridge
