#include "trainer_template/runtime/run/stopped_rank_watch.h"

#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/launch/error_reporter.h"
#include "bridge/net/address.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPeriod{500};

struct Starter {
  int id = 0;         // 0: none
  int own_child = 0;  // this process, or that above it, as a script
};

// The nearest process above this one that is one of a launcher which starts all ranks of a node.
Starter starter_of_ranks(const std::vector<ProcessEntry>& ancestors) {
  for (std::size_t i = 1; i < ancestors.size(); ++i) {
    if (starts_ranks(ancestors[i].name) || ancestors[i].name == "slurmstepd")
      return {static_cast<int>(ancestors[i].id), static_cast<int>(ancestors[i - 1].id)};
  }
  return {};
}

void watch(const std::stop_token& stop, const LaunchOrigin& origin, milliseconds limit) {
  const Starter starter = starter_of_ranks(origin.processes);
  std::map<int, milliseconds> stopped_for;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any stopped;
  // Turns are counted, not time: while this process is stopped itself, as all are when a job is
  // suspended, there are none.
  while (!stopped.wait_for(lock, stop, kPeriod, [&] { return stop.stop_requested(); })) {
    std::map<int, milliseconds> still;
    // The processes of the other ranks: those of scripts that start them, and all below.
    for (const int id : descendants_of(starter.id, starter.own_child)) {
      if (!is_stopped(id)) continue;
      still[id] = stopped_for[id] + kPeriod;
      if (still[id] <= limit) continue;
      const std::string message = formatted(
          "rank {} on {} has been stopped for {} while the ranks start (process {}, state T): "
          "continue that process, or end it",
          LaunchOrigin(environment_of(id), {}).rank, host_name(), seconds(limit), id);
      if (should_report({.message = message, .only_here = true}, origin))
        print_error(origin.rank, message);
      _exit(static_cast<int>(ExitCode::kFailed));
    }
    stopped_for = std::move(still);
  }
}

}  // namespace

StoppedRankWatch::StoppedRankWatch(const LaunchOrigin& origin, milliseconds limit) {
  if (limit.count() > 0 && starter_of_ranks(origin.processes).id != 0)
    thread_ = std::jthread(watch, origin, limit);
}

}  // namespace torchbridge::train
