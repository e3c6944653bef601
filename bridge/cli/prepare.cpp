#include "prepare.h"

#include <exception>

#include <torchbridge/exchange/launch.h>
#include <torchbridge/task/store_port.h>

namespace torchbridge {
namespace {

Status add_task(Prepared& prepared, const EnvMap& environment, const std::vector<std::string>& program) {
  const StepPlan& plan = *prepared.plan;
  const bool agent_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" && !prepared.options.override_user;
  if (plan.env.layout.rank == 0 && !prepared.port.open() && !agent_serves) {
    auto port = reserve_store_port(plan.master);
    if (!port) return port.error();
    prepared.port = std::move(*port);
  }
  if (program.empty()) prepared.port = Socket();
  auto task = task_environment(plan, environment, prepared.options, prepared.port, program);
  if (!task) return task.error();
  prepared.task = std::move(*task);
  return Ok{};
}

// The other ranks wait for this one, whatever happens.
Status add_task_or_say_why(Prepared& prepared, const EnvMap& environment, const std::vector<std::string>& program) {
  try {
    return add_task(prepared, environment, program);
  } catch (const std::exception& error) {
    return Error{error.what()};
  }
}

}  // namespace

Result<Prepared> prepare(const EnvMap& environment, const Options& options, const std::vector<std::string>& program,
                         std::chrono::milliseconds timeout) {
  auto launch = resolve_launch(environment, {options, timeout, StoreSocket::kUnlessKnown});
  if (!launch) return launch.error();
  Prepared prepared{.options = options, .plan = {}, .task = {}, .port = {}, .failure = {}};
  if (!launch->facts) return prepared;
  auto plan = plan_step_at(launch->env.master, std::move(*launch->facts), environment, options);
  if (!plan) return plan.error();
  prepared.plan = std::move(*plan);
  prepared.port = std::move(launch->store_socket);
  if (const auto added = add_task_or_say_why(prepared, environment, program); !added) prepared.failure = added.error();
  auto& variables = prepared.task.variables;
  variables.insert(variables.end(), launch->keep_for_mpi.begin(), launch->keep_for_mpi.end());
  return prepared;
}

}  // namespace torchbridge
