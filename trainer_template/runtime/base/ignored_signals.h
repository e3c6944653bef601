// Signals such as SIGPIPE that report an error which the system call returns too.
#pragma once

#include <csignal>

namespace torchbridge::train {

// Ignores the signal unless the program has a handler for it. Python ignores SIGPIPE and SIGXFSZ in
// the same way.
inline void ignore_unless_handled(int number) {
  struct sigaction now {};
  if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    std::signal(number, SIG_IGN);
}

}  // namespace torchbridge::train
