#include "bridge/worker/write_error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "bridge/base/write_all.h"
#include "bridge/worker/error_json.h"

namespace torchbridge {
namespace {

constexpr std::string_view kCannotWrite = "cannot write the error file '";

}  // namespace

int write_file_bytes(const char* path, std::string_view bytes) {
  const int file =
      open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (file < 0) return errno;
  int error = write_all(file, bytes);
  struct stat found {};
  const bool is_regular = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  if (close(file) != 0 && error == 0 && errno != EINTR) error = errno;
  // torchrun ends with a traceback of its own where half a file is left.
  if (error != 0 && is_regular) unlink(path);
  return error;
}

void print_unwritten(const char* path, int error) {
  const char* reason = strerrordesc_np(error);
  const std::string_view parts[] = {program_invocation_short_name,
                                    ": ",
                                    kCannotWrite,
                                    path,
                                    "': ",
                                    reason != nullptr ? reason : "unknown error",
                                    "\n"};
  char line[4096 + 512];
  std::size_t size = 0;
  for (const std::string_view part : parts) size += part.copy(line + size, sizeof line - size);
  write_all(STDERR_FILENO, {line, size});
}

Status write_error_file(const std::string& path, std::string_view message,
                        std::string_view callstack) {
  if (callstack.empty()) callstack = message;
  std::string json(error_json_bound(message.size() + callstack.size()), '\0');
  json.resize(put_error_json(message, callstack, std::time(nullptr), json.data()));
  return write_error_json(path, json);
}

Status write_error_json(const std::string& path, std::string_view json) {
  const int error = write_file_bytes(path.c_str(), json);
  if (error != 0) return Error{std::string(kCannotWrite) + path + "': " + std::strerror(error)};
  return Ok{};
}

}  // namespace torchbridge
