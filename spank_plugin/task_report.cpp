#include "spank_plugin/task_report.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <utility>
#include <vector>

#include "bridge/core/agent_command.h"
#include "bridge/host/oom_kills.h"
#include "bridge/net/address.h"
#include "bridge/net/passed_descriptor.h"
#include "bridge/step/error_file.h"
#include "bridge/step/failure.h"

namespace torchbridge {
namespace {

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

// Of the tasks that have passed one: another process might pass descriptors without end.
std::vector<PassedDescriptor> passed_folders(const SharedTaskTable& table) {
  std::vector<PassedDescriptor> folders;
  while (folders.size() < table.tasks()) {
    auto folder = take_descriptor(table.folders_out());
    if (!folder) break;
    folders.push_back(std::move(*folder));
  }
  return folders;
}

}  // namespace

void write_record(const SharedTaskTable& table, std::size_t local_task, const ReportedTask& task) {
  const ErrorFile file = open_error_folder(task.error_file);
  const bool is_passed = file.folder.open() && pass_descriptor(table.folders_in(), file.folder.descriptor(),
                                                               static_cast<std::uint32_t>(task.rank));
  table.write_record(local_task, {.rank = task.rank,
                                  .start = system_clock::now(),
                                  .oom_kills = oom_kills(),
                                  .error_file = is_passed ? file.name : "",
                                  .removes_file = task.file_is_ours});
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
  for (const auto& folder : passed_folders(table)) {
    if (folder.number == static_cast<std::uint32_t>(record.rank) && !record.error_file.empty())
      failure.reason = read_error_file(folder.descriptor, record.error_file, record.start);
    pass_descriptor(table.folders_in(), folder.descriptor.descriptor(), folder.number);  // for remove_error_files
  }
  const int signal = signal_of(wait_status);
  const bool is_ended = signal == SIGTERM || signal == SIGINT || (signal == SIGKILL && !failure.out_of_memory);
  const std::string text = describe(failure), first = is_ended ? "first to end" : "first to fail";
  const auto kind = asks_to_end(signal) || is_agent(program) ? Report::Kind::kTaskEnded : Report::Kind::kTaskFailed;
  const bool srun_knows = send_report(listener, {kind, failure.time, first + ": " + text});
  return srun_knows || is_ended ? "" : first + " on this node: " + text;
}

void remove_error_files(const SharedTaskTable& table) {
  std::map<std::uint32_t, std::string> file_of_rank;
  for (std::size_t task = 0; task < table.tasks(); ++task) {
    const auto record = table.record_of(task);
    if (record && record->removes_file) file_of_rank.emplace(record->rank, record->error_file);
  }
  for (const auto& folder : passed_folders(table)) {
    const auto file = file_of_rank.find(folder.number);
    if (file != file_of_rank.end()) unlinkat(folder.descriptor.descriptor(), file->second.c_str(), 0);
  }
}

}  // namespace torchbridge
