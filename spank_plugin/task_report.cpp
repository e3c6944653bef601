#include "task_report.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include <torchbridge/host/oom_kills.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/error_file.h>
#include <torchbridge/task/failure.h>

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

std::string absolute(const std::string& path) {
  if (path.empty() || path.starts_with('/')) return path;
  char folder[3072] = "";
  return getcwd(folder, sizeof folder) == nullptr ? std::string() : std::string(folder) + "/" + path;
}

// Also where a shell says so of its program.
bool may_be_ended_by_slurm(const TaskFailure& failure) {
  const int status = failure.wait_status;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
  return signal == SIGTERM || signal == SIGINT || (signal == SIGKILL && !failure.out_of_memory);
}

}  // namespace

void write_record(TaskRecord& record, int rank, const std::string& error_file) {
  record.rank = rank;
  record.start_ms = std::chrono::duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  record.oom_kills = oom_kills();
  // One that is too long is left out rather than cut: half a name is another name.
  if (const auto path = absolute(error_file); path.size() < sizeof record.error_file)
    std::memcpy(record.error_file, path.c_str(), path.size() + 1);
  record.written = true;
}

std::string tell_failure(const TaskRecord& record, const ReporterAddress& reporter, int wait_status) {
  TaskFailure failure;
  failure.rank = record.rank;
  failure.node = host_name();
  failure.wait_status = wait_status;
  failure.time = system_clock::now();
  failure.out_of_memory = oom_kills() > record.oom_kills;
  const system_clock::time_point start{milliseconds(record.start_ms)};
  if (record.error_file[0] != '\0') failure.reason = read_error_file(record.error_file, start);
  const std::string first = may_be_ended_by_slurm(failure) ? "first to end" : "first to fail";
  const bool srun_knows =
      send_report(reporter, {Report::Kind::kTaskEnded, failure.time, first + ": " + describe(failure)});
  return srun_knows ? "" : first + " on this node: " + describe(failure);
}

}  // namespace torchbridge
