#include "bridge/agent/restart_budget.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/host/own_file.h"
#include "bridge/supervision/guardian.h"
#include "bridge/supervision/run_folder.h"

namespace torchbridge {
namespace {

Error cannot_keep(const std::string& path, const std::string& reason) {
  return Error{
      formatted("cannot keep the number of restarts in '{}': {}", printable(path), reason)};
}

struct BudgetContent {
  int restarts = 0, guardian = 0;
};

Result<BudgetContent> read_content(const Socket& file, const std::string& path) {
  char text[32];
  const ssize_t size = pread(file.descriptor(), text, sizeof text, 0);
  if (size < 0) return cannot_keep(path, std::strerror(errno));
  if (size == 0) return BudgetContent{};
  std::string_view rest(text, static_cast<std::size_t>(size));
  const std::string whole = printable(rest);
  const auto restarts = parse_integer(take_until(rest, ' '), 0, INT32_MAX);
  const auto guardian = parse_integer(take_until(rest, '\n'), 1, INT32_MAX);
  if (!restarts || !guardian)
    return cannot_keep(path,
                       formatted("it contains '{}', not two numbers: remove the file", whole));
  return BudgetContent{static_cast<int>(*restarts), static_cast<int>(*guardian)};
}

// The lock of an agent whose guardian is alive is not waited for.
bool lock(const Socket& file, int guardian) {
  const auto deadline = std::chrono::steady_clock::now() + kKillDeadline;
  while (flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    const bool is_ending = guardian != 0 && kill(guardian, 0) != 0 && errno == ESRCH;
    if (!is_ending || std::chrono::steady_clock::now() > deadline) return false;
    constexpr int kPause = 5;  // milliseconds
    poll(nullptr, 0, kPause);
  }
  return true;
}

}  // namespace

Result<RestartBudget> RestartBudget::open(const RunOptions& options, int guardian_pid) {
  RestartBudget budget;
  const bool has_id = is_named(options);
  if (options.log_dir.empty() || options.log_dir == "/dev/null" || !has_id) return budget;
  const std::string path = options.log_dir + "/" + run_file_name(options.rdzv_id) + ".restarts";
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  Socket file(::open(path.c_str(),
                     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600));
  struct stat opened {};
  if (!file.open() || fstat(file.descriptor(), &opened) != 0)
    return cannot_keep(path, std::strerror(errno));
  const std::string other =
      S_ISREG(opened.st_mode) ? access_of_others(kReadOrWrite, opened) : "is no file";
  if (!other.empty()) return cannot_keep(path, formatted("it {}: give another --log-dir", other));
  const auto content = read_content(file, path);
  if (!content) return content.error();
  if (!lock(file, content->guardian)) return budget;
  if (!is_at_path(file.descriptor(), path))
    return open(options, guardian_pid);          // the agent before this one has removed it
  const auto locked = read_content(file, path);  // or has written once more
  if (!locked) return locked.error();
  budget.path_ = path;
  budget.file_ = std::move(file);
  budget.used_ = locked->restarts;
  budget.guardian_pid_ = guardian_pid;
  if (const auto written = budget.write(); !written) return written.error();
  return budget;
}

Status RestartBudget::write() const {
  if (path_.empty()) return Ok{};
  const std::string text = std::to_string(used_) + " " + std::to_string(guardian_pid_) + "\n";
  return rewrite(file_.descriptor(), text) ? Status(Ok{})
                                           : cannot_keep(path_, std::strerror(errno));
}

Status RestartBudget::use_one() {
  ++used_;
  return write();
}

void RestartBudget::remove() {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace torchbridge
