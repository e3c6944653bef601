#include "task_report.h"

#include <unistd.h>

#include <chrono>
#include <cstring>

#include <torchbridge/host/oom_kills.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/error_file.h>
#include <torchbridge/task/failure.h>

#include "as_user.h"
#include "failure_desk.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// A text that is too long is left out rather than cut: half a name is another name.
template <std::size_t Size>
void copy(char (&target)[Size], const std::string& text) {
  if (text.size() < Size) std::memcpy(target, text.c_str(), text.size() + 1);
}

std::string absolute(const std::string& path) {
  if (path.empty() || path.starts_with('/')) return path;
  char folder[3072] = "";
  return getcwd(folder, sizeof folder) == nullptr ? std::string() : std::string(folder) + "/" + path;
}

std::string describe(const TaskRecord& record, int wait_status, system_clock::time_point time) {
  TaskFailure failure;
  failure.rank = record.rank;
  failure.node = host_name();
  failure.wait_status = wait_status;
  failure.time = time;
  failure.out_of_memory = oom_kills() > record.oom_kills;
  const system_clock::time_point start{milliseconds(record.start_ms)};
  if (record.error_file[0] != '\0') failure.reason = read_error_file(record.error_file, start);
  return describe(failure);
}

}  // namespace

void write_record(TaskRecord& record, const EnvMap& environment, int rank, const std::string& error_file) {
  record.rank = rank;
  record.start_ms = std::chrono::duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  record.oom_kills = oom_kills();
  copy(record.error_file, absolute(error_file));
  if (const auto desk = DeskAddress::from(environment)) {
    copy(record.desk_host, desk->host);
    copy(record.desk_token, desk->token);
    record.desk_port = desk->port;
  }
  record.written = true;
}

std::string tell_failure(const TaskRecord& record, uid_t user, gid_t group, int wait_status) {
  const auto time = system_clock::now();
  return run_as_user(user, group, [&]() -> std::string {
    const std::string failure = describe(record, wait_status, time);
    const DeskAddress desk{record.desk_host, record.desk_port, record.desk_token};
    const bool srun_knows = !desk.host.empty() && tell_desk(desk, time, "first to fail: " + failure);
    return srun_knows ? "" : "first to fail on this node: " + failure;
  });
}

}  // namespace torchbridge
