#include "trainer_template/runtime/output/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/write_all.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/output/output_file.h"

namespace torchbridge::train {
namespace {

// The descriptor behind /dev/stdout and the like. It is written through, not opened again: a second
// open file would have a position of its own and overwrite the process's other output.
std::optional<int> own_descriptor(const std::filesystem::path& path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  const std::string folder = path.parent_path().string(), number = path.filename().string();
  if (folder != "/dev/fd" && folder != "/proc/self/fd") return std::nullopt;
  const auto value = parse_integer(number, 0, INT_MAX);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

// Waits up to five seconds for a reader of a named pipe.
Socket open_to_write(const std::filesystem::path& path) {
  constexpr std::chrono::seconds kTimeout{5};
  constexpr std::chrono::milliseconds kRetry{50};
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (true) {
    Socket file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
    if (file.open())
      fcntl(file.descriptor(), F_SETFL, fcntl(file.descriptor(), F_GETFL) & ~O_NONBLOCK);
    if (file.open() || errno != ENXIO || std::chrono::steady_clock::now() > deadline) return file;
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace

RecordFile::RecordFile(const std::filesystem::path& path, const char* option) : path_(path) {
  const auto own = own_descriptor(path);
  file_ = own ? Socket(fcntl(*own, F_DUPFD_CLOEXEC, 0)) : open_to_write(path);
  struct stat status {};
  if (!file_.open() || fstat(file_.descriptor(), &status) != 0)
    throw cannot_open(path, errno == ENXIO ? "no process reads this pipe" : std::strerror(errno),
                      option);
  is_regular_ = !own && S_ISREG(status.st_mode);
}

bool RecordFile::is_empty() const {
  struct stat status {};
  return is_regular_ && fstat(file_.descriptor(), &status) == 0 && status.st_size == 0;
}

// Appends in the kernel, because others may truncate the file: logrotate's copytruncate.
int RecordFile::write_end(std::string_view end, std::string_view record) {
  const int file = file_.descriptor();
  if (!is_regular_) return write_all(file, record);
  struct stat status {};
  if (fstat(file, &status) != 0) return errno;
  const off_t position = status.st_size - std::ssize(end);
  if (lseek(file, position, SEEK_SET) < 0) return errno;
  if (!end.empty()) fcntl(file, F_SETFL, 0);
  const int error = write_all(file, record);
  if (error != 0) {
    // The blocks of `end` are allocated, so it can be written again on a full disk.
    [[maybe_unused]] const bool restored = ftruncate(file, status.st_size) == 0 &&
                                           lseek(file, position, SEEK_SET) >= 0 &&
                                           write_all(file, end) == 0;
  }
  if (!end.empty()) fcntl(file, F_SETFL, O_APPEND);
  return error;
}

bool RecordFile::replace_end(std::string_view end, std::string_view record) {
  if (!file_.open()) return true;
  const int error = write_end(end, record);
  if (error == 0) {
    failing_ = false;
    return true;
  }
  if (!failing_)
    print_message(
        formatted("cannot write '{}': {}; training continues, and records are lost until writing "
                  "succeeds again",
                  path_.string(), std::strerror(error)));
  failing_ = incomplete_ = true;
  return false;
}

void RecordFile::check_complete() const {
  if (incomplete_)
    throw TrainError(
        formatted("'{}' is incomplete: some records could not be written", path_.string()));
}

}  // namespace torchbridge::train
