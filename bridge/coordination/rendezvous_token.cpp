#include "bridge/coordination/rendezvous_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bridge/base/message_text.h"
#include "bridge/core/agent_command.h"
#include "bridge/host/own_file.h"
#include "bridge/net/socket.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {
namespace {

Result<std::string> read_token(const std::string& path) {
  const std::string source = formatted("--rdzv-token-file '{}'", printable(path));
  const auto wrong = [&](const std::string& reason) { return Error{source + ": " + reason}; };
  const Socket file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file.open() || fstat(file.descriptor(), &status) != 0) {
    return wrong(errno == ELOOP ? "it is a symbolic link: give the file itself"
                                : std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return wrong("it is no file");
  if (const std::string other = access_of_others(kReadOrWrite, status); !other.empty()) {
    return wrong(formatted("it {}: make one that this user alone can read (chmod 600)", other));
  }
  char text[2 * kLongestToken];
  const ssize_t size = read(file.descriptor(), text, sizeof text);
  if (size < 0) return wrong(std::strerror(errno));
  return checked_token(source, {text, static_cast<std::size_t>(size)});
}

}  // namespace

Result<std::string> rendezvous_token(const std::string& file, const EnvMap& environment) {
  if (!file.empty()) return read_token(file);
  const auto variable = environment.get(kTokenVariable);
  return variable ? checked_token(kTokenVariable, *variable) : Result<std::string>(std::string());
}

}  // namespace torchbridge
