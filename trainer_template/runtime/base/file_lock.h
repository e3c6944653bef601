// Keeps what several runs may name to one of them: an advisory lock, which is gone with its process, however that ends.
#pragma once

#include <string>

#include "bridge/net/socket.h"

namespace torchbridge::train {

// Takes the lock of an open file, which its descriptor holds then. Waits some seconds for it: a run whose launcher was
// killed takes a moment to end, and the same command may be given again at once. False where another still has it. Some
// network file systems cannot lock: they are used without, with a line that names `what`, "checkpoint folder 'runs/a'".
bool lock_file(const Socket& file, const std::string& what);

}  // namespace torchbridge::train
