// Writes the error file of this process: what torch.distributed.elastic's @record is for Python.
#pragma once

#include <functional>
#include <string>

namespace torchbridge {

// For main, around all that can fail:
//
//     int main(int argc, char** argv) {
//       return torchbridge::record([&] { return train(argc, argv); });
//     }
//
// Returns what `body` returns. If TORCHELASTIC_ERROR_FILE is set, the first failure of this process
// is written to that file, in the form that torchrun and `srun --torch-env` read. The process then
// ends as it would without record():
// - an uncaught exception, in any thread, also where std::terminate is called for another reason:
//   its type,
//   text and the stack that threw it. The process ends by SIGABRT. An exception that a handler
//   around record() catches
//   is not written;
// - SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, with glibc's backtrace. A stack overflow is
//   written for the thread
//   that calls record(). Handlers that were set before run afterwards; one that is set later
//   replaces this.
// An error file that exists is overwritten; one that cannot be written is a line on stderr. A
// forked process writes nothing until it calls record() itself. An exit code, also one that is not
// 0, is no failure that is written.
int record(const std::function<int()>& body);

// What record() does before it calls `body`, for programs that catch their exceptions. An empty
// path records nothing. Call it in the main thread before others start.
void record_failures(const std::string& error_file);

// For programs that catch their exceptions: writes this failure, unless one is written already or
// record_failures was not called. `message` is "TYPE: TEXT", or a text alone; `callstack` is the
// message where it is empty. Any thread.
void record_error(const std::string& message, const std::string& callstack = {});

}  // namespace torchbridge
