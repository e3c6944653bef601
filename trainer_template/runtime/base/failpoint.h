// Fault injection for test builds. TORCHBRIDGE_FAIL=PHASE:N kills the process (SIGKILL) when it
// reaches that phase for the N-th time, and PHASE:N:stop stops it (SIGSTOP). With "count" it prints
// the number of hits of each phase, in one line, when it ends. Without the CMake option
// TORCHBRIDGE_FAILPOINTS nothing happens.
//
// Phases of a start: start bind publish heartbeat join verdict connect. Of training: step evaluate
// (each batch) snapshot write fsync rename directory-fsync DONE prune. Of the end: exit (before the
// last barrier) gpu (before a wait for the GPU) left (after it).
#pragma once

namespace torchbridge::train {

// Any thread. Any other value of the variable ends the process with exit code 2 and a message:
// otherwise a test with a misspelled phase would pass without a fault.
void failpoint(const char* phase);

}  // namespace torchbridge::train
