// torchbridge env | exec | explain | launch | run | status
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "bridge/agent/agent.h"
#include "bridge/base/message_text.h"
#include "bridge/cli/cli_options.h"
#include "bridge/cli/explain_svg.h"
#include "bridge/cli/run_option_values.h"
#include "bridge/cli/slurm_steps.h"
#include "bridge/coordination/rendezvous_token.h"
#include "bridge/coordination/run_status.h"
#include "bridge/core/agent_command.h"
#include "bridge/core/exported_values.h"
#include "bridge/host/exec_arguments.h"
#include "bridge/launch/end_step.h"
#include "bridge/launch/error_reporter.h"
#include "bridge/launch/launch.h"
#include "bridge/net/address.h"
#include "bridge/program/pages.h"
#include "bridge/step/node_check.h"
#include "bridge/step/task_environment.h"

using namespace torchbridge;

namespace {

int print_message(const std::string& message, int exit_code = EXIT_FAILURE) {
  std::fprintf(stderr, "torchbridge: %s\n", message.c_str());
  return exit_code;
}

// Printed by one rank of those that have the error. The others would wait for a rank that fails
// alone.
int fail(const Error& error, const LaunchOrigin& origin, int exit_code = EXIT_FAILURE) {
  const int rank = error.only_here ? origin.rank : 0;
  const std::string prefix = rank == 0 ? "" : formatted("rank {} on {}: ", rank, host_name());
  const bool is_reporter = should_report(error, origin);
  if (is_reporter) print_message(prefix + error.message);
  if (is_reporter && error.only_here) end_step(origin);
  return exit_code;
}

int print_env(const std::vector<Variable>& variables, EnvFormat format) {
  if (format == EnvFormat::kShell) {
    for (const auto& [name, value] : variables)
      std::printf("export %s=%s\n", name.c_str(), shell_word(value).c_str());
    return EXIT_SUCCESS;
  }
  auto object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : variables) object[name] = value;
  std::puts(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return EXIT_SUCCESS;
}

// The program keeps pid, signals and descriptors of this process, and its exit code is the
// process's.
int become_program(const TaskEnvironment& task, const EnvMap& environment,
                   const std::vector<std::string>& program) {
  for (const auto& note : task.notes) print_message(note);
  std::fflush(nullptr);
  const int error = ExecArguments(program, environment).exec();
  const StartFailure failure =
      start_failure(formatted("cannot run '{}': ", printable(program.front())), error);
  return print_message(failure.error.message, failure.exit_code);
}

// The options of the variable with those of the command line on top, which win.
Result<LaunchOptions> merged_options(const EnvMap& environment, const std::string& list) {
  const auto from_variable = parse_options(environment.get(kOptionsVariable).value_or(""));
  if (!from_variable)
    return Error{std::string(kOptionsVariable) + ": " + from_variable.error().message};
  auto options = parse_options(list, *from_variable);
  if (!options) return Error{"--torch-env: " + options.error().message};
  return options;
}

Result<TaskEnvironment> environment_of_task(const Launch& launch, const LaunchOrigin& origin,
                                            const EnvMap& environment, const CliOptions& line) {
  if (!launch.plan) return TaskEnvironment();
  const Socket no_socket;
  auto task = task_environment(*launch.plan, environment,
                               line.command == Command::kExec ? launch.store_socket : no_socket,
                               line.program);
  if (!task) return task;
  auto& variables = task->variables;
  variables.insert(variables.end(), launch.mpi_variables.begin(), launch.mpi_variables.end());
  add_setter({SetBy::kExec, origin.launch()}, environment, variables);
  return task;
}

int run(const CliOptions& line, const LaunchOrigin& found) {
  const LaunchOrigin origin = is_agent(line.program) ? origin_of_agent(found) : found;
  auto options = merged_options(origin.environment, line.list);
  if (!options) throw CommandLineEnd{kBadUsage, options.error().message};
  options->explain = options->explain || line.command == Command::kExplain;
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(line.timeout_s * 1000));
  if (options->explain && !options->check)
    options->check = static_cast<int>(std::max(line.timeout_s, 1.0));
  const auto launch = resolve_launch(origin, {*options, timeout, StoreSocket::kReserved});
  if (!launch) return fail(launch.error(), origin);
  if (!launch->note.empty()) print_message(launch->note);
  const EnvMap environment = without_empty(origin.environment, launch->is_by_hand).environment;
  const auto task = environment_of_task(*launch, origin, environment, line);
  if (!task) return fail(task.error(), origin);
  if (line.command == Command::kEnv) return print_env(task->variables, line.format);
  const EnvMap complete = with_variables(environment, task->variables);
  if (options->explain && !launch->plan) {
    return fail({"explain: RANK and WORLD_SIZE are already set, and the reasons are not known "
                 "here: run explain where they are set, as in srun --torch-env=explain true"},
                origin);
  }
  if (launch->plan && (options->explain || options->check.value_or(0) != 0)) {
    const NodeCheck check{.hint = {}, .describe = line.svg ? &explain_svg : &explain};
    const auto table = check_nodes(*launch->plan, complete, check);
    if (!table) return fail(table.error(), origin);
    if (options->explain) return std::fputs(table->c_str(), stdout), EXIT_SUCCESS;
  }
  return become_program(*task, complete, line.program);
}

Result<std::vector<StepCoordinator>> coordinators_of_run(const std::string& name) {
  if (is_slurm_job(name)) return coordinators_of_job(name);
  auto endpoint = parse_endpoint(name);
  if (!endpoint) throw CommandLineEnd{kBadUsage, "status: " + endpoint.error().message};
  if (endpoint->port == 0) endpoint->port = kRendezvousPort;
  return std::vector{StepCoordinator{*endpoint, RunOptions().rdzv_id}};
}

// Of a job, each step that answers: others run other programs.
int print_run_status(const CliOptions& line, const EnvMap& environment) {
  const auto token = rendezvous_token(line.token_file, environment);
  if (!token) return print_message(token.error().message);
  const auto coordinators = coordinators_of_run(line.run_name);
  if (!coordinators) return print_message(coordinators.error().message);
  std::string problem = formatted("job {} has no running step", line.run_name);
  bool has_answered = false;
  for (const auto& [endpoint, run_id] : *coordinators) {
    const RunKey key = token->empty()
                           ? RunKey::of_run_id(line.rdzv_id.empty() ? run_id : line.rdzv_id)
                           : RunKey::of_token(*token);
    const auto status = ask_run_status(endpoint, key, std::chrono::seconds(10));
    const auto shown =
        status && line.format != EnvFormat::kJson ? run_status_table(*status) : status;
    if (!shown) {
      problem = shown.error().message;
      continue;
    }
    has_answered = true;
    std::fputs(shown->c_str(), stdout);
  }
  return has_answered ? EXIT_SUCCESS : print_message(problem);
}

int run_as_agent(const RunOptions& options, const LaunchOrigin& origin) {
  auto [environment, note] = without_empty(origin.environment);
  if (!note.empty() && origin.rank == 0) print_message(note);
  LaunchOrigin own = origin;
  own.environment = std::move(environment);
  for (const std::string& key : options.rdzv_conf.unread)
    print_message(formatted("--rdzv-conf: no backend reads the key {}", key));
  return run_agent(options, own);
}

}  // namespace

int main(int argc, char** argv) {
  const LaunchOrigin origin(EnvMap::from(environ));
  try {
    const CliOptions line = parse_cli_options(argc, argv, origin.environment);
    if (line.command == Command::kStatus) return print_run_status(line, origin.environment);
    return line.command == Command::kRun ? run_as_agent(line.run, origin) : run(line, origin);
  } catch (const CommandLineEnd& end) {
    if (end.exit_code != 0) return fail({end.text}, origin, end.exit_code);
    if (origin.rank == 0) std::fputs(end.text.c_str(), stdout);
    return end.exit_code;
  } catch (const std::exception& error) {
    return print_message(error.what());
  }
}
