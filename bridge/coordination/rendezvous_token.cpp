#include "bridge/coordination/rendezvous_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bridge/core/agent_command.h"
#include "bridge/host/file_owner.h"
#include "bridge/net/socket.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

Result<std::string> checked(const std::string& source, std::string_view token) {
  if (token.size() >= kShortestToken && token.size() <= kLongestToken) return std::string(token);
  return Error{source + ": the token has " + std::to_string(token.size()) + " characters: expected " +
               std::to_string(kShortestToken) + " to " + std::to_string(kLongestToken) +
               ", as openssl rand -hex 16 prints"};
}

Result<std::string> read_token(const std::string& path) {
  const std::string source = "--rdzv-token-file '" + printable(path) + "'";
  const auto wrong = [&](const std::string& reason) { return Error{source + ": " + reason}; };
  const Socket file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file.open() || fstat(file.descriptor(), &status) != 0) {
    return wrong(errno == ELOOP ? "it is a symbolic link: give the file itself" : std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return wrong("it is no file");
  if (const std::string other = who_else_may(kReadOrWrite, status); !other.empty()) {
    return wrong("it " + other + ": make one that this user alone can read (chmod 600)");
  }
  char text[2 * kLongestToken];
  const ssize_t size = read(file.descriptor(), text, sizeof text);
  if (size < 0) return wrong(std::strerror(errno));
  return checked(source, trimmed({text, static_cast<std::size_t>(size)}));
}

}  // namespace

Result<std::string> rendezvous_token(const std::string& file, const EnvMap& environment) {
  if (!file.empty()) return read_token(file);
  const auto variable = environment.get(kTokenVariable);
  return variable ? checked(kTokenVariable, trimmed(*variable)) : Result<std::string>(std::string());
}

}  // namespace torchbridge
