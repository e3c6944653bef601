// Writes the signal that ends this process to its error file.
#pragma once

namespace torchbridge {

// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT of any thread, once recording has started
// (recorded_failure.h): their name, the address or the sender, and glibc's backtrace. Then what was
// set before happens: by default the signal ends the process, with its exit status and a core dump.
// The stack of the calling thread may overflow: a second one is kept for its handlers. Other
// threads need their own (sigaltstack). Call it in the main thread before others start.
void report_fatal_signals();

}  // namespace torchbridge
