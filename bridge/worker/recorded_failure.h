// The one failure of this process that its error file has: the first.
#pragma once

#include <string>

namespace torchbridge {

// From now on the first failure of this process belongs into the file. A process that it forks has
// to call this itself.
void start_recording(const std::string& path);

// The other functions may be called in any thread, and in signal handlers.

// True for the first failure since start_recording: the caller writes it to recorded_path(), and
// calls end_claim(). False for later ones, after the first is written (five seconds at most);
// before start_recording; and in a forked process.
bool claim_failure();
void end_claim();

// REQUIRES: claim_failure() was true.
const char* recorded_path();

}  // namespace torchbridge
