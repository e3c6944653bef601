#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
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

C10_DECLARE_int(caffe2_log_level);

namespace torchbridge::train {
namespace {

std::atomic<int> own_rank{0};
std::atomic<ProcessGroup*> own_group{nullptr};
std::atomic<bool> is_failure_reported{false};

[[noreturn]] void print_and_abort() {
  std::string text = "std::terminate was called without an exception";
  try {
    if (const std::exception_ptr exception = std::current_exception())
      std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    // Of a destructor, after the error that they follow from.
    const bool is_of_group = dynamic_cast<const c10::AcceleratorError*>(&error) ||
                             dynamic_cast<const c10::DistError*>(&error);
    if (is_of_group && is_failure_reported) _exit(static_cast<int>(ExitCode::kFailed));
    ProcessGroup* const group = own_group;
    if (is_of_group && group) group->report_and_exit(error);
    text = one_line(error);
  } catch (...) {
    text = "an exception of another type than std::exception";
  }
  print_error(own_rank, text);
  std::abort();
}

// From now on std::terminate prints the exception as this rank's error, in one line, and ends the
// process by SIGABRT. It is called for an exception that leaves a thread, and for one of a
// destructor. Call it before record_failures(), which then still writes the error file.
void print_uncaught(int rank) {
  own_rank = rank;
  is_failure_reported = false;
  std::set_terminate(print_and_abort);
}

// After an error of a kernel the destructors of the GPU's memory throw it, and those of c10d's
// groups one of their own, also while it unwinds already. From now on the group then reports it
// (ProcessGroup::report_and_exit); null: no longer.
void report_group_errors_by(ProcessGroup* group) { own_group = group; }

// Once the failure of the job is reported, by this rank or another: such an error, as of a tensor
// that outlives the group, ends the process without a line, by ExitCode::kFailed.
void report_no_group_errors() { is_failure_reported = true; }

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
