// An advisory lock that keeps a folder or file to one run. The kernel releases it when the process
// ends, however it ends.
#pragma once

#include <string>

#include "bridge/net/socket.h"

namespace torchbridge::train {

// Locks an open file; its descriptor holds the lock. Waits up to 5 s, because a run whose launcher
// was killed takes a moment to end and the same command may start again at once. False if another
// process still has the lock. Some network file systems cannot lock: then it prints a message that
// names `what`, such as "checkpoint folder 'runs/a'", and returns true.
bool lock_file(const Socket& file, const std::string& what);

}  // namespace torchbridge::train
