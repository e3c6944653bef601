// torchbridge env | exec | explain
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include <torchbridge/exchange/launch.h>
#include <torchbridge/exchange/one_voice.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/meeting_places.h>
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

// Another rank says it.
int leave(const EnvMap& environment, int exit_code = EXIT_FAILURE) {
  leave_the_word(environment);
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

// All tasks come, also those that cannot go on: nobody waits for a rank that has ended. Rank 0 gets the table of `explain`; nothing where there is no
// more to be said.
std::optional<std::string> meet(const Prepared& prepared, const EnvMap& environment) {
  const int rank = prepared.plan->env.layout.rank;
  MeetingWords words;
  if (prepared.failure) words.failure = (rank == 0 ? "" : "rank " + std::to_string(rank) + " on " + host_name() + ": ") + prepared.failure->message;
  words.report = [](const std::string& failure) { complain(failure); };
  words.elsewhere = [&] { return other_meeting_places(prepared.plan->facts, prepared.plan->map, prepared.options); };
  auto met = meet_nodes(*prepared.plan, with_variables(environment, prepared.task.variables), prepared.options, words);
  if (met) return std::move(*met);
  if (!met.error().reported_elsewhere) complain(met.error().message);
  return std::nullopt;
}

int become_program(Prepared prepared, EnvMap environment, const std::vector<std::string>& program) {
  for (const auto& note : prepared.task.notes) complain(note);
  environment = with_variables(std::move(environment), prepared.task.variables);
  std::fflush(nullptr);
  const ExecFailure failure = become(program, environment);
  return complain(failure.error.message, failure.exit_code);
}

// Of the variable and the command line, which wins.
Result<Options> merged_options(const EnvMap& environment, const std::string& list) {
  const auto from_variable = parse_options(environment.get(kOptionsVariable).value_or(""));
  if (!from_variable) return Error{std::string(kOptionsVariable) + ": " + from_variable.error().message};
  auto options = parse_options(list, *from_variable);
  if (!options) return Error{"--torch-env: " + options.error().message};
  return options;
}

int run(const CommandLine& line, const EnvMap& environment) {
  auto options = merged_options(environment, line.list);
  if (!options) throw CommandLineEnd{kBadUsage, options.error().message};
  options->explain = options->explain || line.command == Command::kExplain;
  if (!options->check) options->check = static_cast<int>(std::max(line.timeout_s, 1.0));
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(line.timeout_s * 1000));
  const bool starts = line.command == Command::kExec;
  auto prepared = prepare(environment, *options, starts ? line.program : std::vector<std::string>(), timeout);
  if (!prepared && prepared.error().reported_elsewhere) return leave(environment);
  // What is wrong with the job every rank finds out; one says it.
  if (!prepared) return speaks_for_all(environment) ? complain(prepared.error().message) : EXIT_FAILURE;
  if (line.command == Command::kEnv) return prepared->failure ? complain(prepared->failure->message) : print_env(*prepared, line.format);
  if (options->explain && !prepared->plan) {
    if (!speaks_for_all(environment)) return EXIT_FAILURE;
    return complain("RANK and its companions are set already, and what decided on them is not known here: ask it, as in srun --torch-env=explain true");
  }
  if (prepared->plan && (options->explain || *options->check != 0)) {
    const auto table = meet(*prepared, environment);
    if (!table) return EXIT_FAILURE;
    if (options->explain) return std::fputs(table->c_str(), stdout), EXIT_SUCCESS;
  }
  if (prepared->failure) return complain(prepared->failure->message);
  return become_program(std::move(*prepared), environment, line.program);
}

}  // namespace

int main(int argc, char** argv) {
  const EnvMap environment = of_this_launch(EnvMap::from(environ));
  try {
    return run(parse_command_line(argc, argv), environment);
  } catch (const CommandLineEnd& end) {
    const bool speaks = presumed_rank(environment) == 0;
    if (end.exit_code != 0) return speaks ? complain(end.text, end.exit_code) : leave(environment, end.exit_code);
    if (speaks) std::fputs(end.text.c_str(), stdout);
    return end.exit_code;
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}
