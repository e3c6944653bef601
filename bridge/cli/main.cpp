// torchbridge env | exec | explain
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include <torchbridge/exchange/launch.h>
#include <torchbridge/exchange/one_voice.h>
#include <torchbridge/task/roll.h>

#include "command_line.h"
#include "exec.h"
#include "prepare.h"

using namespace torchbridge;

namespace {

int complain(const std::string& message, int exit_code = EXIT_FAILURE) {
  std::fprintf(stderr, "torchbridge: %s\n", message.c_str());
  return exit_code;
}

// Single quotes, as a shell needs them.
std::string quoted(const std::string& value) {
  std::string text = "'";
  for (const char c : value) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

int print_env(const Prepared& prepared, EnvFormat format) {
  if (format == EnvFormat::kShell) {
    for (const auto& [name, value] : prepared.task.variables) std::printf("export %s=%s\n", name.c_str(), quoted(value).c_str());
    return EXIT_SUCCESS;
  }
  auto object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : prepared.task.variables) object[name] = value;
  std::puts(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return EXIT_SUCCESS;
}

int print_table(const Prepared& prepared, const EnvMap& environment) {
  if (!prepared.plan) {
    if (!speaks_for_all(environment)) return EXIT_FAILURE;
    return complain("RANK and its companions are set already, and what decided on them is not known here: ask it, as in srun --torch-env=explain true");
  }
  const auto table = meet_nodes(*prepared.plan, with_variables(environment, prepared.task.variables), prepared.options);
  if (!table) return table.error().message.empty() ? EXIT_FAILURE : complain(table.error().message);
  std::fputs(table->c_str(), stdout);
  return EXIT_SUCCESS;
}

int become_program(Prepared prepared, EnvMap environment, const std::vector<std::string>& program) {
  for (const auto& note : prepared.task.notes) complain(note);
  environment = with_variables(std::move(environment), prepared.task.variables);
  std::fflush(nullptr);
  const ExecFailure failure = become(program, environment);
  return complain(failure.error.message, failure.exit_code);
}

int run(const CommandLine& line, const EnvMap& environment) {
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(line.timeout_s * 1000));
  bool own_trouble = false;
  auto prepared = prepare(environment, line.list, line.command == Command::kExec ? line.program : std::vector<std::string>(), timeout, own_trouble);
  // What is wrong with the job every rank finds out; one says it.
  if (!prepared) {
    const bool speaks = own_trouble || speaks_for_all(environment);
    return speaks ? complain(prepared.error().message) : EXIT_FAILURE;
  }
  if (line.command == Command::kEnv) return print_env(*prepared, line.format);
  Options& options = prepared->options;
  options.explain = options.explain || line.command == Command::kExplain;
  // Under MPI's launchers the ranks have met already; tasks of Slurm have not.
  const bool meets = prepared->plan && (options.check ? *options.check != 0 : prepared->plan->facts.launcher == "slurm");
  if (!options.check) options.check = static_cast<int>(std::max(line.timeout_s, 1.0));
  if (options.explain) return print_table(*prepared, environment);
  if (meets) {
    const auto met = meet_nodes(*prepared->plan, with_variables(environment, prepared->task.variables), prepared->options);
    if (!met) return met.error().message.empty() ? EXIT_FAILURE : complain(met.error().message);
  }
  return become_program(std::move(*prepared), environment, line.program);
}

}  // namespace

int main(int argc, char** argv) {
  const EnvMap environment = of_this_launch(EnvMap::from(environ));
  try {
    return run(parse_command_line(argc, argv), environment);
  } catch (const CommandLineEnd& end) {
    if (presumed_rank(environment) != 0) return end.exit_code;
    if (end.exit_code != 0) return complain(end.text, end.exit_code);
    std::fputs(end.text.c_str(), stdout);
    return end.exit_code;
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}
