#include "bridge/host/exec_arguments.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace torchbridge {

StartFailure start_failure(const std::string& message, int error) {
  constexpr int kNotFound = 127, kNotExecutable = 126;
  return {error == ENOENT ? kNotFound : kNotExecutable, {message + std::strerror(error)}};
}

ExecArguments::ExecArguments(const std::vector<std::string>& command, const EnvMap& environment) {
  for (const std::string& argument : command)
    arguments_.push_back(const_cast<char*>(argument.c_str()));
  arguments_.push_back(nullptr);
  for (const auto& [name, value] : environment) entries_.push_back(name + "=" + value);
  for (std::string& entry : entries_) variables_.push_back(entry.data());
  variables_.push_back(nullptr);
}

int ExecArguments::exec() const {
  execvpe(arguments_.front(), arguments_.data(), variables_.data());
  return errno;
}

}  // namespace torchbridge
