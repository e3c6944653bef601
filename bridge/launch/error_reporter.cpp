#include "bridge/launch/error_reporter.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "bridge/core/nested_launch.h"
#include "bridge/host/process_tree.h"
#include "bridge/launch/end_step.h"
#include "bridge/launch/launcher_exchange.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

// The name is held until this process ends.
bool is_first_on_node(const EnvMap& environment) {
  const std::string job = job_key(environment) + key_of_pmi(environment);
  return job.empty() || claim_name("error" + job);
}

// "MASTER_PORT='x': expected ..." or "TORCHBRIDGE_OPTIONS: ..."
bool names_variable(const std::string& message, const std::string& name) {
  const auto is_of_name = [](char c) { return c == '_' || (c >= 'A' && c <= 'Z'); };
  for (auto at = message.find(name); at != message.npos; at = message.find(name, at + 1)) {
    const auto end = at + name.size();
    const bool begins = at == 0 || !is_of_name(message[at - 1]);
    if (begins && end < message.size() && (message[end] == '=' || message[end] == ':')) return true;
  }
  return false;
}

}  // namespace

bool is_of_own_variable(const Error& error, const LaunchOrigin& origin) {
  const EnvMap& own = origin.environment;
  const auto task = own.integer("SLURM_TASK_PID", 1, INT32_MAX);
  if (!task || !*task || !has_step_of_several(origin)) return false;
  const EnvMap of_task = environment_of(**task);
  if (of_task.get("SLURM_TASK_PID") != own.get("SLURM_TASK_PID")) return false;  // not seen
  return std::ranges::any_of(own, [&](const auto& variable) {
    const auto& [name, value] = variable;
    return names_variable(error.message, name) && of_task.get(name) != value &&
           !is_recorded(own, name, value);
  });
}

bool should_report(const Error& error, const LaunchOrigin& origin) {
  constexpr int kFallbackReporters = 3;
  constexpr std::chrono::seconds kReportInterval{5};
  const int rank = origin.rank;
  if (!error.reported_elsewhere &&
      (error.only_here ? is_first_on_node(origin.environment) : rank == 0))
    return true;
  if (!origin.is_of_mpirun()) {
    if (error.reported_elsewhere || error.only_here || !is_of_own_variable(error, origin))
      return false;
    std::this_thread::sleep_for(kReportInterval);
    return is_first_on_node(origin.environment);
  }
  std::this_thread::sleep_for(std::min(std::max(rank, 1), kFallbackReporters) * kReportInterval);
  return !error.reported_elsewhere && !error.only_here && rank <= kFallbackReporters;
}

}  // namespace torchbridge
