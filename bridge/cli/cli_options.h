// The options of torchbridge's commands.
#pragma once

#include <string>
#include <vector>

#include "bridge/cli/command_line_end.h"

namespace torchbridge {

enum class Command { kEnv, kExec, kExplain };
enum class EnvFormat { kShell, kJson };

struct CliOptions {
  Command command = Command::kEnv;
  std::string list;  // --torch-env
  EnvFormat format = EnvFormat::kShell;
  double timeout_s = 60;
  std::vector<std::string> program;  // of exec, with its arguments; not empty then
};

// Throws CommandLineEnd.
CliOptions parse_cli_options(int argc, char** argv);

}  // namespace torchbridge
