#include "bridge/launch/error_reporter.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "bridge/launch/launcher_exchange.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

// The name is held until this process ends.
bool is_first_on_node(const EnvMap& environment) {
  const std::string job = job_key(environment) + key_of_pmi(environment);
  return job.empty() || claim_name("error" + job);
}

}  // namespace

bool should_report(const Error& error, const LaunchOrigin& origin) {
  constexpr int kFallbackReporters = 3;
  constexpr std::chrono::seconds kReportInterval{5};
  const int rank = origin.rank;
  if (!error.reported_elsewhere &&
      (error.only_here ? is_first_on_node(origin.environment) : rank == 0))
    return true;
  if (!origin.is_of_mpirun()) return false;
  std::this_thread::sleep_for(std::min(std::max(rank, 1), kFallbackReporters) * kReportInterval);
  return !error.reported_elsewhere && !error.only_here && rank <= kFallbackReporters;
}

}  // namespace torchbridge
