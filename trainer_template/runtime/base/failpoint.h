// Places where a test build can be told to die: TORCHBRIDGE_FAIL=PHASE:N kills the process (SIGKILL) when it comes to
// that phase for the N-th time, PHASE:N:stop stops it (SIGSTOP); with "count" it writes how often it came to each, in
// one line, when it ends. In builds without the CMake option TORCHBRIDGE_FAILPOINTS nothing happens.
//
// Phases of a start: bind publish join. Of training: step evaluate (each batch) snapshot write fsync rename
// directory-fsync DONE prune exit.
#pragma once

namespace torchbridge::train {

// Any thread. A variable that is none of these ends the process with a line: a test that kills nobody would pass.
void failpoint(const char* phase);

}  // namespace torchbridge::train
