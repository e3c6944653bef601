// How a task failed, and the report on it.
#pragma once

#include <sys/wait.h>

#include <chrono>
#include <string>

namespace torchbridge {

inline constexpr int kRequeueExitCode = 75;  // EX_TEMPFAIL: checkpointed, and requests a requeue

inline bool wants_requeue(int wait_status) {
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kRequeueExitCode;
}

// The exit code of a shell: 128+signal.
inline int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

struct TaskFailure {
  int rank = 0;
  std::string host;
  int wait_status = 0;                         // as waitpid gives it; never 0
  std::chrono::system_clock::time_point time;  // of the failure, or when it was noticed
  std::string clock;  // the host by whose clock `time` is, and is to be shown
  // The kernel ended processes of the host for lack of memory while the task ran.
  bool is_out_of_memory = false;
};

// "rank 3 on n1, at 2026-11-21 12:03:04.123 (local time of n1): killed by signal 11 (Segmentation
// fault)"; below it the reason, which may hold any bytes, a line each, indented. The escapes of
// JSON strings in it become lines again; control characters and bytes outside ASCII are escaped,
// and lines after the 64th are left out.
std::string describe(const TaskFailure& failure, const std::string& reason = "");

}  // namespace torchbridge
