#include "bridge/cli/exec.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace torchbridge {

ExecFailure become(const std::vector<std::string>& program, const EnvMap& environment) {
  constexpr int kNotFound = 127, kNotExecutable = 126;
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  std::vector<char*> variables, arguments;
  for (std::string& entry : entries) variables.push_back(entry.data());
  variables.push_back(nullptr);
  for (const std::string& argument : program) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvpe(arguments.front(), arguments.data(), variables.data());
  const int error = errno;
  return {error == ENOENT ? kNotFound : kNotExecutable,
          {"cannot run '" + printable(program.front()) + "': " + std::strerror(error)}};
}

}  // namespace torchbridge
