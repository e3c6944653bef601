// The options of torchbridge's commands.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/cli/command_line_end.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

enum class Command { kEnv, kExec, kExplain, kRun, kStatus };
enum class EnvFormat { kShell, kJson };

struct CliOptions {
  Command command = Command::kEnv;
  std::string list;  // --torch-env
  EnvFormat format = EnvFormat::kShell;
  bool svg = false;  // of explain
  double timeout_s = 60;
  std::vector<std::string> program;  // of exec, with its arguments; not empty then
  RunOptions run;                    // of run and launch
  std::string run_name;              // of status: an endpoint, or a Slurm job
  std::string rdzv_id, token_file;   // of status; or empty
};

// Throws CommandLineEnd.
CliOptions parse_cli_options(int argc, char** argv, const EnvMap& environment);

}  // namespace torchbridge
