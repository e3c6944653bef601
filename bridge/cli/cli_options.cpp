#include "bridge/cli/cli_options.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/cli/run_command_line.h"
#include "bridge/cli/run_option_pages.h"
#include "bridge/coordination/connection_proof.h"
#include "bridge/coordination/http_client.h"
#include "bridge/core/launch_options.h"
#include "bridge/launch/launcher_exchange.h"
#include "bridge/program/pages.h"
#include "bridge/program/program.h"

namespace torchbridge {
namespace {

// CLI::Range lets "nan" pass.
std::string is_number(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) && std::isfinite(value)
             ? ""
             : formatted("'{}': expected a number", text);
}

void add_common(CLI::App* command, CliOptions& line) {
  command->add_option(
      "--torch-env", line.list,
      formatted("KEY=VALUE,... on top of the variable TORCHBRIDGE_OPTIONS:\n{}", options_help()));
  command->add_option("--timeout", line.timeout_s, "Seconds to wait for the other ranks")
      ->check(CLI::Range(0.1, 86400.0) & CLI::Validator(is_number, "", "NUMBER"))
      ->capture_default_str();
}

// The advice for an unexpected word: users write entries of the list without --torch-env=.
std::string torch_env_advice(const std::string& word) {
  const bool is_entry = static_cast<bool>(parse_options(word));
  return formatted("options are written --torch-env={}", is_entry ? word : "KEY=VALUE,...");
}

// Of exec: every word before -- that is no option.
void check_words_of_exec(const std::vector<std::string>& words, bool has_program) {
  if (words.empty() && has_program) return;
  if (words.empty())
    throw CommandLineEnd{kBadUsage, "exec needs a program after -- (see torchbridge --help)"};
  const std::string& word = words.front();
  if (!has_program && !parse_options(word))
    throw CommandLineEnd{kBadUsage,
                         formatted("write -- before the program: torchbridge exec -- {}", word)};
  throw CommandLineEnd{kBadUsage,
                       formatted("unexpected argument '{}' before --: {} (see torchbridge --help)",
                                 printable(word), torch_env_advice(word))};
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
    if (const std::string& shell = line.run.print_completion; !shell.empty()) {
      std::string page = "--help=" + shell;
      char* words[] = {argv[0], page.data(), nullptr};
      return parse_cli_options(2, words, environment);
    }
    line.run.called_as = argv[0];
    return line;
  }
  CLI::App app("Gives programs torchrun's environment under Slurm, OpenMPI, MPICH and others.",
               "torchbridge");
  set_up(app, formatted("{}, {}, agents' protocol {}", is_built_with_pmix() ? "PMIx" : "no PMIx",
                        HttpClient::is_built() ? "etcd" : "no etcd", kAgentProtocol));
  app.require_subcommand(1);

  auto* exec = app.add_subcommand(
      "exec", "Become a program, with torchrun's environment: torchbridge exec -- python train.py");
  add_common(exec, line);
  std::vector<std::string> without_dashes;
  exec->add_option("program", without_dashes, "The program and its arguments, after --");
  exec->positionals_at_end();
  exec->callback([&] { line.command = Command::kExec; });

  auto* env = app.add_subcommand("env", "Print the variables that exec would set");
  add_common(env, line);
  std::string format = "sh";
  env->add_option("--format", format, "sh (to be sourced) or json")
      ->check(CLI::IsMember({"sh", "json"}))
      ->capture_default_str();
  env->callback([&] {
    line.command = Command::kEnv;
    line.format = format == "json" ? EnvFormat::kJson : EnvFormat::kShell;
  });

  auto* explain = app.add_subcommand("explain", "Print which rank runs where, with what, and why");
  add_common(explain, line);
  explain->add_flag("--svg", line.svg, "Print a picture (SVG) instead of the table");
  explain->callback([&] { line.command = Command::kExplain; });

  auto* status = app.add_subcommand(
      "status", "Print the nodes, ranks and restarts of a run over several nodes");
  status
      ->add_option("run", line.run_name,
                   "HOST:PORT of --rdzv-endpoint, or the id of a Slurm job or step")
      ->required();
  status->add_flag_callback(
      "--json", [&] { line.format = EnvFormat::kJson; }, "Print JSON instead of a table");
  status->add_option(
      "--rdzv-token-file", line.token_file,
      "File with the token of the run; default: the variable TORCHBRIDGE_RDZV_TOKEN");
  status->add_option("--rdzv-id", line.rdzv_id,
                     "Id of a run without a token; default: that of the Slurm step, else none");
  status->callback([&] { line.command = Command::kStatus; });

  // For the list of commands: CLI11 does not read their options.
  constexpr const char* kRun =
      "Run a program as torchrun does: torchbridge run --nproc-per-node 2 train.py";
  constexpr const char* kLaunch =
      "The same as torch.distributed.launch does, with --local-rank=N as first argument";
  const bool is_completion = argc == 2 && std::string_view(argv[1]).starts_with("--help=") &&
                             std::string_view(argv[1]) != "--help=man";
  for (const auto& [name, text] : {std::pair("run", kRun), std::pair("launch", kLaunch)}) {
    if (is_completion) {
      app.add_subcommand(run_command(name))->description(text);
    } else {
      app.add_subcommand(name, text);
    }
  }
  if (const auto page = page_asked_for(app, argc, argv)) throw CommandLineEnd{0, *page};

  // CLI11 would split "[a,b]" into a list of two, so it does not get the program's arguments.
  const auto dashes = std::find(argv + 1, argv + argc, std::string_view("--"));
  if (dashes < argv + argc) line.program.assign(dashes + 1, argv + argc);
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::ParseError& error) {
    if (const auto text = help_or_version(app, error)) throw CommandLineEnd{0, *text};
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    const bool is_entry = !unknown.empty() && parse_options(unknown.front());
    throw CommandLineEnd{kBadUsage,
                         formatted("{}{} (see torchbridge --help)", command_line_error(app, error),
                                   is_entry ? ": " + torch_env_advice(unknown.front()) : "")};
  }
  if (line.command != Command::kExec && !line.program.empty())
    throw CommandLineEnd{kBadUsage, "only exec starts a program (see torchbridge --help)"};
  if (line.command == Command::kExec) check_words_of_exec(without_dashes, !line.program.empty());
  return line;
}

}  // namespace torchbridge
