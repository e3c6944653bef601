#include "trainer_template/runtime/run/job.h"

#include <iostream>
#include <memory>
#include <optional>

#include <ATen/Parallel.h>
#include <c10/util/Flags.h>

#include "bridge/launch/error_reporter.h"
#include "bridge/launch/launch.h"
#include "bridge/launch/launcher_death.h"
#include "bridge/worker/record.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/run/kill_when_stopped.h"
#include "trainer_template/runtime/run/stopped_rank_watch.h"

C10_DECLARE_int(caffe2_log_level);

namespace torchbridge::train {
namespace {

// c10d prints several lines of warnings a rank about lost connections, which would hide the one line of the error.
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

// As torchrun does: processes of one node that use all its cores each would slow each other down.
void set_threads(const EnvMap& environment, const Layout& layout) {
  if (layout.local_world_size > 1 && !environment.has("OMP_NUM_THREADS")) at::set_num_threads(1);
}

}  // namespace

int run_job(const EnvMap& environment, const std::function<GroupOptions()>& configure,
            const std::function<ExitCode(ProcessGroup&)>& train) {
  failpoint("start");
  end_with_launcher(environment);
  record_failures(std::string(environment.get("TORCHELASTIC_ERROR_FILE").value_or("")));
  quiet_c10d(environment);
  const int early_rank = presumed_rank(environment);
  GroupOptions options;
  try {
    options = configure();
  } catch (const EarlyExit& exit) {
    if (exit.code == ExitCode::kDone) return early_rank == 0 ? show(exit.what()) : static_cast<int>(exit.code);
    return should_report({exit.what()}, environment) ? report_error(early_rank, exit.what(), exit.code)
                                                     : static_cast<int>(exit.code);
  }

  std::optional<StoppedRankWatch> start_watch(std::in_place, environment, options.heartbeat_timeout);
  LaunchSettings settings;
  settings.timeout = options.time_to_join();
  auto launch = resolve_launch(options.init_method, options.ranks, environment, settings);
  if (!launch) {
    if (should_report(launch.error(), environment)) report_error(early_rank, launch.error().message, ExitCode::kFailed);
    return static_cast<int>(ExitCode::kFailed);
  }
  const int rank = launch->env.layout.rank;
  set_threads(environment, launch->env.layout);

  std::unique_ptr<ProcessGroup> group;
  try {
    group = std::make_unique<ProcessGroup>(*std::move(launch), options);
    start_watch.reset();
    const ExitCode code = train(*group);
    // Longer than the heartbeat's timeout: as long as the group exists, a rank that is stopped is named.
    const bool has_heartbeat = group->world_size() > 1 && options.heartbeat_timeout.count() > 0;
    if (has_heartbeat) kill_when_stopped(options.heartbeat_timeout + kAfterHeartbeat);
    group->leave();
    failpoint("left");
    return static_cast<int>(code);
  } catch (const PeerFailed& error) {
    if (group) group->message_for(error);
  } catch (const std::exception& error) {
    const auto message = group ? group->message_for(error) : one_line(error);
    if (message) return report_error(rank, *message, ExitCode::kFailed);
  }
  (void)should_report(Error::elsewhere(), environment);
  return static_cast<int>(ExitCode::kFailed);
}

}  // namespace torchbridge::train
