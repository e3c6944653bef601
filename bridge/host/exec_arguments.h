// A program with its arguments and environment, ready for execvpe.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// A program that could not be started, with a shell's exit codes: 127 where it does not exist, 126
// where it cannot be executed.
struct StartFailure {
  int exit_code;
  Error error;
};

// `message` with the text of the errno behind it.
StartFailure start_failure(const std::string& message, int error);

// All that allocates is done here, so that exec() may be called in a fork. The command must outlive
// it.
class ExecArguments {
 public:
  ExecArguments(const std::vector<std::string>& command, const EnvMap& environment);
  ExecArguments(const ExecArguments&) = delete;
  ExecArguments& operator=(const ExecArguments&) = delete;

  // Looks the program up in PATH as a shell does. Returns only where it cannot be executed: the
  // errno.
  int exec() const;
  // "NAME=value" of each variable, and a null at the end.
  const std::vector<char*>& variables() const { return variables_; }

 private:
  std::vector<std::string> entries_;
  std::vector<char*> arguments_, variables_;
};

}  // namespace torchbridge
