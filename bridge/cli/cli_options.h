// The options of torchbridge's commands.
#pragma once

#include <string>
#include <vector>

namespace torchbridge {

inline constexpr int kBadUsage = 2;  // exit code

enum class Command { kEnv, kExec, kExplain };
enum class EnvFormat { kShell, kJson };

struct CliOptions {
  Command command = Command::kEnv;
  std::string list;  // --torch-env
  EnvFormat format = EnvFormat::kShell;
  double timeout_s = 60;
  std::vector<std::string> program;  // of exec, with its arguments; not empty then
};

// A text to print before the program ends: help, to standard output with exit code 0, or an error, to standard error.
struct CommandLineEnd {
  int exit_code;
  std::string text;
};

// Throws CommandLineEnd.
CliOptions parse_cli_options(int argc, char** argv);

}  // namespace torchbridge
