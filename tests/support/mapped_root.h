// A user who is root in a user namespace, as in a rootless container. Needs root.
#pragma once

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>
#include <string>

// What `act` returns in a child process of that user; nothing where this machine makes no such
// namespace.
inline std::optional<bool> as_mapped_root(uid_t outside, const std::function<bool()>& act) {
  constexpr int kNoNamespace = 77;
  const auto write = [](const char* path, const std::string& text) {
    return static_cast<bool>(std::ofstream(path) << text << std::flush);
  };
  const pid_t child = fork();
  if (child == 0) {
    const bool is_made = setuid(outside) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0 &&
                         unshare(CLONE_NEWUSER) == 0 &&
                         write("/proc/self/uid_map", "0 " + std::to_string(outside) + " 1");
    _exit(!is_made ? kNoNamespace : act() ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) return std::nullopt;
  return status == 0;
}
