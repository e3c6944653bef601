#include "spank_plugin/task_report.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "bridge/base/message_text.h"
#include "bridge/core/agent_command.h"
#include "bridge/host/close_from.h"
#include "bridge/host/oom_kills.h"
#include "bridge/host/process_tree.h"
#include "bridge/net/address.h"
#include "bridge/net/passed_descriptor.h"
#include "bridge/step/error_file.h"
#include "bridge/step/failure.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// The signal that ended the task, also by a shell's exit code for a program that a signal ended.
int signal_of(int wait_status) { return exit_code_of(wait_status) - 128; }

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

std::map<std::uint32_t, TaskRecord> records_by_rank(const SharedTaskTable& table) {
  std::map<std::uint32_t, TaskRecord> records;
  for (std::size_t task = 0; task < table.tasks(); ++task) {
    if (const auto record = table.record_of(task)) records.emplace(record->rank, *record);
  }
  return records;
}

std::string describe_stop(const TaskRecord& record, int process, milliseconds limit) {
  return formatted(
      "rank {} on {} has been stopped for {} s since it started (process {}, state T): continue "
      "that process, or end it",
      record.rank, host_name(), std::chrono::duration_cast<std::chrono::seconds>(limit).count(),
      process);
}

// Of a task and of all below it, as its rank may be started by a script; empty where it has ended.
std::vector<int> processes_of(const TaskRecord& record, std::int64_t latest_start) {
  if (record.process <= 0 || kill(record.process, 0) != 0 ||
      start_ticks(record.process) > latest_start)
    return {};
  std::vector<int> processes = descendants_of(record.process);
  processes.push_back(record.process);
  return processes;
}

void watch(const SharedTaskTable& table, const FailureListenerAddress& listener,
           milliseconds limit) {
  constexpr milliseconds kPeriod{500};
  // Slurm forks all tasks of a node before any of them goes on: what started after this process has
  // the id of a task that has ended.
  const std::int64_t latest_start = start_ticks(getpid());
  std::map<int, milliseconds> stopped_for;  // by process
  bool has_tasks = true;
  for (milliseconds age{0}; has_tasks && (age < kStarting || !stopped_for.empty());
       age += kPeriod) {
    poll(nullptr, 0, kPeriod.count());
    std::map<int, milliseconds> still;
    has_tasks = false;
    for (std::size_t task = 0; task < table.tasks(); ++task) {
      const auto record = table.record_of(task);
      if (!record) continue;
      for (const int process : processes_of(*record, latest_start)) {
        has_tasks = true;
        if (!is_stopped(process)) continue;
        const milliseconds time = still[process] = stopped_for[process] + kPeriod;
        if (time <= limit) continue;
        const std::string text = describe_stop(*record, process, limit);
        if (send_report(listener, {StepReport::Kind::kTaskHangs, system_clock::now(), text}))
          return;
      }
    }
    stopped_for = std::move(still);
  }
}

// Adopted by init, or by slurmstepd, as soon as its parent has ended.
[[noreturn]] void run_watch(const SharedTaskTable& table, const FailureListenerAddress& listener,
                            milliseconds limit) noexcept try {
  if (fork() == 0) {
    close_from(0);  // srun would wait for the standard streams, and the port of rank 0 stay taken
    watch(table, listener, limit);
  }
  _exit(0);
} catch (const std::exception&) {
  _exit(0);
}

}  // namespace

bool is_asked_to_end(int wait_status) {
  constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  return std::find(std::begin(kSignals), std::end(kSignals), signal_of(wait_status)) !=
         std::end(kSignals);
}

void write_record(const SharedTaskTable& table, std::size_t local_task, const ReportedTask& task) {
  const ErrorFile file = open_error_folder(task.error_file);
  const bool is_passed =
      file.folder.open() && pass_descriptor(table.folders_in(), file.folder.descriptor(),
                                            static_cast<std::uint32_t>(task.rank));
  table.write_record(local_task, {.rank = task.rank,
                                  .process = getpid(),
                                  .start = system_clock::now(),
                                  .oom_kills = oom_kills(),
                                  .error_file = is_passed ? file.name : "",
                                  .removes_file = task.file_is_ours});
}

FailureReport report_failure(const SharedTaskTable& table, const TaskRecord& record,
                             const FailureListenerAddress& listener, int wait_status,
                             const std::vector<std::string>& program, bool is_first) {
  TaskFailure failure;
  failure.rank = record.rank;
  failure.host = failure.clock = host_name();
  failure.wait_status = wait_status;
  const auto now = failure.time = system_clock::now();
  failure.is_out_of_memory = oom_kills() > record.oom_kills;
  const auto records = records_by_rank(table);
  std::string reason;
  auto earliest = system_clock::time_point::max();  // that another task of this node wrote
  for (const auto& folder : passed_folders(table)) {
    const auto writer = records.find(folder.number);
    if (writer != records.end() && !writer->second.error_file.empty()) {
      const auto& [name, start] = std::tie(writer->second.error_file, writer->second.start);
      const ErrorFileContent content = read_error_file(folder.descriptor, name, start);
      const bool is_own = writer->second.rank == record.rank;
      if (is_own && !content.text.empty()) {
        reason = content.text;
        // It failed then: ranks that fail because of it may end before. Not bounded by the start:
        // of a file that several ranks share, no rank's failure may seem earlier than another's.
        failure.time = std::min(content.written, now);
      } else if (!content.text.empty()) {
        earliest = std::min(earliest, content.written);
      }
    }
    // For remove_error_files.
    pass_descriptor(table.folders_in(), folder.descriptor.descriptor(), folder.number);
  }
  const bool is_cause = !reason.empty() && failure.time <= earliest;
  if (!is_first && !is_cause) return {};
  const int signal = signal_of(wait_status);
  const bool is_ended =
      signal == SIGTERM || signal == SIGINT || (signal == SIGKILL && !failure.is_out_of_memory);
  const std::string text = describe(failure, reason),
                    first = is_ended ? "first to end" : "first to fail";
  const bool may_save = is_asked_to_end(wait_status) && now - record.start >= kStarting;
  const auto kind =
      may_save || is_agent(program) ? StepReport::Kind::kTaskEnded : StepReport::Kind::kTaskFailed;
  const StepReport report{kind, failure.time, first + ": " + text};
  // srun closes connections while strangers flood its port. Twice takes less than kAbortLimit.
  const bool srun_knows = send_report(listener, report) || send_report(listener, report);
  return {srun_knows || is_ended ? "" : formatted("{} on this node: {}", first, text), is_cause};
}

void remove_error_files(const SharedTaskTable& table) {
  const auto records = records_by_rank(table);
  for (const auto& folder : passed_folders(table)) {
    const auto writer = records.find(folder.number);
    if (writer != records.end() && writer->second.removes_file)
      unlinkat(folder.descriptor.descriptor(), writer->second.error_file.c_str(), 0);
  }
}

void watch_stopped_tasks(const SharedTaskTable& table, const FailureListenerAddress& listener,
                         milliseconds limit) {
  const pid_t child = fork();
  if (child == 0) run_watch(table, listener, limit);
  if (child > 0) waitpid(child, nullptr, 0);
}

}  // namespace torchbridge
