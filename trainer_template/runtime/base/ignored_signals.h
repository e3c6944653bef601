// Signals that tell of an error which the system call returns too.
#pragma once

#include <csignal>

namespace torchbridge::train {

// Leaves a handler of the program's own alone. Python does so with SIGPIPE and SIGXFSZ from its start.
inline void ignore_unless_handled(int number) {
  struct sigaction now {};
  if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(number, SIG_IGN);
}

}  // namespace torchbridge::train
