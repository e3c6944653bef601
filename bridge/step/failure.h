// The report on a task that failed.
#pragma once

#include <chrono>
#include <string>

namespace torchbridge {

struct TaskFailure {
  int rank = 0;
  std::string node;
  int wait_status = 0;  // as waitpid gives it
  std::chrono::system_clock::time_point time;
  std::string clock;           // the host by whose clock `time` is, and is to be shown
  bool out_of_memory = false;  // the kernel ended processes of the node for lack of memory while the task ran
  std::string reason;          // content of its error file, any bytes; or empty
};

// "rank 3 on n1, at 2026-11-21 12:03:04.123 (local time of n1): killed by signal 11 (Segmentation fault)"; below it
// the reason, a line each, indented. The escapes of JSON strings in it become lines again; control characters and bytes
// outside ASCII are escaped, and lines after the 64th are left out.
std::string describe(const TaskFailure& failure);

}  // namespace torchbridge
