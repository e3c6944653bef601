#include "bridge/agent/summary_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "bridge/base/message_text.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

// A named pipe or a terminal; a file that cannot be written is none.
bool has_reader(const std::string& path) {
  struct stat status {};
  if (access(path.c_str(), W_OK) != 0 || stat(path.c_str(), &status) != 0) return false;
  if (!S_ISCHR(status.st_mode)) return S_ISFIFO(status.st_mode);
  const Socket file(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  return isatty(file.descriptor()) != 0;
}

// A pipe may also have to wait for its reader. False where it could not be written in time.
bool write_for_reader(AgentContext& context, const std::string& path, const std::string& text) {
  constexpr std::chrono::milliseconds kPause{50};
  Socket file;
  std::optional<ConsoleWriter> writer;
  for (;;) {
    if (!file.open())
      file = Socket(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (!file.open() && errno != ENXIO) return false;
    if (file.open() && !writer) writer.emplace(file.descriptor()).add(text);
    if (writer) writer->flush();
    if (writer && !writer->has_pending()) return true;
    if (SteadyTime::clock::now() >= context.output_until ||
        wait_for_events(context, SteadyTime::clock::now() + kPause).is_guardian_gone)
      return false;
  }
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return !!file;
}

}  // namespace

Status empty_summary(const std::string& path) {
  if (path.empty() || has_reader(path) || std::ofstream(path)) return Ok{};
  return Error{
      formatted("--json-summary '{}': cannot write it: {}", printable(path), std::strerror(errno))};
}

bool write_summary(AgentContext& context, const std::string& text) {
  const std::string& path = context.options.json_summary;
  return has_reader(path) ? write_for_reader(context, path, text) : write_file(path, text);
}

}  // namespace torchbridge
