#include "spank_plugin/task_report.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

#include "bridge/core/agent_command.h"
#include "bridge/host/oom_kills.h"
#include "bridge/net/address.h"
#include "bridge/net/passed_descriptor.h"
#include "bridge/step/error_file.h"
#include "bridge/step/failure.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// The signal that ended the task, also by a shell's exit code for a program that a signal ended.
int signal_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status) - 128;
}

// Slurm and users send these so that tasks save and end: scancel, a time limit, preemption, --signal.
bool asks_to_end(int signal) {
  constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  return std::find(std::begin(kSignals), std::end(kSignals), signal) != std::end(kSignals);
}

}  // namespace

void write_record(const SharedTaskTable& table, TaskRecord& record, int rank, const std::string& error_file) {
  record.rank = rank;
  record.start_ms = std::chrono::duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  record.oom_kills = oom_kills();
  const ErrorFile file = open_error_folder(error_file);
  // A name that is too long is left out: truncated it would be the name of another file.
  if (file.folder.open() && file.name.size() < sizeof record.error_file) {
    std::memcpy(record.error_file, file.name.c_str(), file.name.size() + 1);
    pass_descriptor(table.folders_in(), file.folder.descriptor(), static_cast<std::uint32_t>(rank));
  }
  record.written = true;
}

std::string report_failure(const SharedTaskTable& table, const TaskRecord& record,
                           const FailureListenerAddress& listener, int wait_status,
                           const std::vector<std::string>& program) {
  TaskFailure failure;
  failure.rank = record.rank;
  failure.node = failure.clock = host_name();
  failure.wait_status = wait_status;
  failure.time = system_clock::now();
  failure.out_of_memory = oom_kills() > record.oom_kills;
  const system_clock::time_point start{milliseconds(record.start_ms)};
  while (const auto folder = take_descriptor(table.folders_out())) {  // the folders of other tasks are dropped
    if (folder->number == static_cast<std::uint32_t>(record.rank))
      failure.reason = read_error_file(folder->descriptor, record.error_file, start);
  }
  const int signal = signal_of(wait_status);
  const bool is_ended = signal == SIGTERM || signal == SIGINT || (signal == SIGKILL && !failure.out_of_memory);
  const std::string text = describe(failure), first = is_ended ? "first to end" : "first to fail";
  const auto kind = asks_to_end(signal) || is_agent(program) ? Report::Kind::kTaskEnded : Report::Kind::kTaskFailed;
  const bool srun_knows = send_report(listener, {kind, failure.time, first + ": " + text});
  return srun_knows || is_ended ? "" : first + " on this node: " + text;
}

}  // namespace torchbridge
