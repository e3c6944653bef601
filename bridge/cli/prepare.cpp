#include "prepare.h"

#include <torchbridge/exchange/launch.h>

namespace torchbridge {
namespace {

Result<Options> merged_options(const EnvMap& environment, const std::string& list) {
  const auto from_variable = parse_options(environment.get(kOptionsVariable).value_or(""));
  if (!from_variable) return Error{std::string(kOptionsVariable) + ": " + from_variable.error().message};
  auto options = parse_options(list, *from_variable);
  if (!options) return Error{"--torch-env: " + options.error().message};
  return options;
}

}  // namespace

Result<Prepared> prepare(const EnvMap& environment, const std::string& list, const std::vector<std::string>& program,
                         std::chrono::milliseconds timeout, bool& own_trouble) {
  own_trouble = false;
  auto options = merged_options(environment, list);
  if (!options) return options.error();
  auto launch = resolve_launch(environment, {*options, timeout, StoreSocket::kReserved});
  if (!launch) return launch.error();

  Prepared prepared{.options = *options, .plan = {}, .task = {}, .port = {}};
  if (!launch->facts) return prepared;
  auto plan = plan_step_at(launch->env.master, std::move(*launch->facts), environment, *options);
  if (!plan) return plan.error();
  if (program.empty()) launch->store_socket = Socket();
  auto task = task_environment(*plan, environment, *options, launch->store_socket, program);
  own_trouble = !task;
  if (!task) return task.error();
  task->variables.insert(task->variables.end(), launch->keep_for_mpi.begin(), launch->keep_for_mpi.end());
  prepared.plan = std::move(*plan);
  prepared.task = std::move(*task);
  prepared.port = std::move(launch->store_socket);
  return prepared;
}

}  // namespace torchbridge
