#include <iostream>
#include <memory>
#include <optional>

#include <ATen/Parallel.h>
#include <c10/util/Flags.h>
#include <torchbridge/errors.h>
#include <torchbridge/process_group.h>

#include "bridge/host/standard_streams.h"
#include "bridge/launch/error_reporter.h"
#include "bridge/launch/launch.h"
#include "bridge/launch/launcher_death.h"
#include "bridge/worker/record.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/run/kill_when_stopped.h"
#include "trainer_template/runtime/run/stopped_rank_watch.h"
#include "trainer_template/runtime/run/uncaught.h"

C10_DECLARE_int(caffe2_log_level);

namespace torchbridge::train {
namespace {

// c10d prints several lines of warnings a rank about lost connections, which would hide the one
// line of the error.
void quiet_c10d(const EnvMap& environment) {
  constexpr int kError = 2;
  if (!environment.has("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = kError;
}

int report_error(int rank, const std::string& message, ExitCode code) {
  print_error(rank, message);
  return static_cast<int>(code);
}

int show(const std::string& text) {
  try {
    std::cout << text;
    flush_stdout();
    return static_cast<int>(ExitCode::kDone);
  } catch (const TrainError& error) {
    return report_error(0, error.what(), ExitCode::kFailed);
  }
}

constexpr std::chrono::seconds kAfterHeartbeat{2};

struct GroupEnd {
  void operator()(ProcessGroup* group) const {
    report_group_errors_by(nullptr);
    delete group;
  }
};

// As torchrun does: processes of one node that use all its cores each would slow each other down.
void set_threads(const EnvMap& environment, const Layout& layout) {
  const bool is_set = !environment.get("OMP_NUM_THREADS").value_or("").empty();
  if (layout.local_world_size > 1 && !is_set) at::set_num_threads(1);
}

}  // namespace

int run_job(const LaunchOrigin& origin, const std::function<GroupOptions()>& configure,
            const std::function<ExitCode(ProcessGroup&)>& train) {
  const EnvMap& environment = origin.environment;
  (void)open_standard_streams();  // without /dev/null they stay as they are
  failpoint("start");
  end_with_launcher(origin);
  print_uncaught(origin.rank);
  record_failures(std::string(environment.get("TORCHELASTIC_ERROR_FILE").value_or("")));
  quiet_c10d(environment);
  GroupOptions options;
  try {
    options = configure();
  } catch (const EarlyExit& exit) {
    if (exit.code == ExitCode::kDone)
      return origin.rank == 0 ? show(exit.what()) : static_cast<int>(exit.code);
    return should_report({exit.what()}, origin) ? report_error(origin.rank, exit.what(), exit.code)
                                                : static_cast<int>(exit.code);
  }

  std::optional<StoppedRankWatch> start_watch(std::in_place, origin, options.heartbeat_timeout);
  LaunchSettings settings;
  settings.timeout = options.time_to_join();
  auto launch = resolve_launch(options.init_method, options.ranks, origin, settings);
  if (!launch) {
    if (should_report(launch.error(), origin))
      report_error(origin.rank, launch.error().message, ExitCode::kFailed);
    return static_cast<int>(ExitCode::kFailed);
  }
  if (!launch->note.empty()) print_message(launch->note);
  const int rank = launch->env.layout.rank;
  set_threads(environment, launch->env.layout);

  std::unique_ptr<ProcessGroup, GroupEnd> group;
  bool is_reported = false;
  try {
    group.reset(new ProcessGroup(*std::move(launch), options));
    report_group_errors_by(group.get());
    start_watch.reset();
    const ExitCode code = train(*group);
    // Longer than the heartbeat's timeout: as long as the group exists, a rank that is stopped is
    // named.
    const bool has_heartbeat = group->world_size() > 1 && options.heartbeat_timeout.count() > 0;
    if (has_heartbeat) kill_when_stopped(options.heartbeat_timeout + kAfterHeartbeat);
    group->leave();
    failpoint("left");
    return static_cast<int>(code);
  } catch (const PeerFailed& error) {
    is_reported = group && group->report(error);
  } catch (const std::exception& error) {
    is_reported = !group || group->report(error);
    if (!group) print_error(rank, one_line(error));
  }
  if (!is_reported) (void)should_report(Error::elsewhere(), origin);
  report_no_group_errors();
  return static_cast<int>(ExitCode::kFailed);
}

}  // namespace torchbridge::train
