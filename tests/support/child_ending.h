// How a child process ends that a test forks.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <string>

inline std::string exited(int code) { return "exit code " + std::to_string(code); }
inline std::string killed(int signal) { return "signal " + std::to_string(signal); }

// Of a child that does `work`: exited(0) where that returns.
template <class Work>
std::string ending_of_child(Work&& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "not waited for";
  return WIFEXITED(status) ? exited(WEXITSTATUS(status)) : killed(WTERMSIG(status));
}
