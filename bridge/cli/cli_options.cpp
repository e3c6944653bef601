#include "bridge/cli/cli_options.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>

#include "bridge/cli/run_command_line.h"
#include "bridge/core/launch_options.h"
#include "bridge/program/program.h"

namespace torchbridge {
namespace {

// CLI::Range lets "nan" pass.
std::string is_number(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) && std::isfinite(value) ? "" : "'" + text + "': expected a number";
}

void add_common(CLI::App* command, CliOptions& line) {
  command->add_option("--torch-env", line.list,
                      "KEY=VALUE,... on top of the variable TORCHBRIDGE_OPTIONS:\n" + options_help());
  command->add_option("--timeout", line.timeout_s, "Seconds to wait for the other ranks")
      ->check(CLI::Range(0.1, 86400.0) & CLI::Validator(is_number, "", "NUMBER"))
      ->capture_default_str();
}

// The style of the command run or launch, or nothing for another command.
std::optional<RunStyle> run_style(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "run") return RunStyle::kTorchrun;
  if (command == "launch") return RunStyle::kTorchLaunch;
  return std::nullopt;
}

}  // namespace

CliOptions parse_cli_options(int argc, char** argv, const EnvMap& environment) {
  CliOptions line;
  if (const auto style = run_style(argc, argv)) {
    line.command = Command::kRun;
    line.run = parse_run_options({argv + 2, argv + argc}, environment, *style);
    return line;
  }
  CLI::App app("Gives programs torchrun's environment under Slurm, OpenMPI, MPICH and others.", "torchbridge");
  set_up(app);
  app.require_subcommand(1);

  auto* exec =
      app.add_subcommand("exec", "Become a program, with torchrun's environment: torchbridge exec -- python train.py");
  add_common(exec, line);
  std::vector<std::string> without_dashes;
  exec->add_option("program", without_dashes, "The program and its arguments, after --");
  exec->positionals_at_end();
  exec->callback([&] { line.command = Command::kExec; });

  auto* env = app.add_subcommand("env", "Print the variables that exec would set");
  add_common(env, line);
  const std::map<std::string, EnvFormat> formats = {{"sh", EnvFormat::kShell}, {"json", EnvFormat::kJson}};
  env->add_option("--format", line.format, "sh (to be sourced) or json")->transform(CLI::CheckedTransformer(formats));
  env->callback([&] { line.command = Command::kEnv; });

  auto* explain = app.add_subcommand("explain", "Print which rank runs where, with what, and why");
  add_common(explain, line);
  explain->callback([&] { line.command = Command::kExplain; });

  auto* status = app.add_subcommand("status", "Print the nodes, ranks and restarts of a run over several nodes");
  status->add_option("run", line.run_name, "HOST:PORT of --rdzv-endpoint, or the id of a Slurm job or step")
      ->required();
  status->add_flag_callback(
      "--json", [&] { line.format = EnvFormat::kJson; }, "Print JSON instead of a table");
  status->add_option("--rdzv-token-file", line.token_file,
                     "File with the token of the run; default: the variable TORCHBRIDGE_RDZV_TOKEN");
  status->add_option("--rdzv-id", line.rdzv_id,
                     "Id of a run without a token; default: that of the Slurm step, else none");
  status->callback([&] { line.command = Command::kStatus; });

  // For the list of commands: CLI11 does not read their options.
  app.add_subcommand("run", "Run a program as torchrun does: torchbridge run --nproc-per-node 2 train.py");
  app.add_subcommand("launch", "The same as torch.distributed.launch does, with --local-rank=N as first argument");

  // CLI11 would split "[a,b]" into a list of two, so it does not get the program's arguments.
  const auto dashes = std::find(argv + 1, argv + argc, std::string_view("--"));
  if (dashes < argv + argc) line.program.assign(dashes + 1, argv + argc);
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::ParseError& error) {
    if (const auto text = help_or_version(app, error)) throw CommandLineEnd{0, *text};
    throw CommandLineEnd{kBadUsage, command_line_error(app, error) + " (see torchbridge --help)"};
  }
  if (line.command != Command::kExec && !line.program.empty())
    throw CommandLineEnd{kBadUsage, "only exec starts a program (see torchbridge --help)"};
  if (line.command == Command::kExec && line.program.empty()) {
    throw CommandLineEnd{kBadUsage, without_dashes.empty()
                                        ? "exec needs a program after -- (see torchbridge --help)"
                                        : "write -- before the program: torchbridge exec -- " + without_dashes.front()};
  }
  return line;
}

}  // namespace torchbridge
