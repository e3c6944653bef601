#include "trainer_template/runtime/backends/paused_listeners.h"

#include <dirent.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "bridge/base/env_map.h"

namespace torchbridge::train {
namespace {

constexpr int kBacklog = 4096;  // as bridge/net/socket.cpp; the kernel caps it at net.core.somaxconn

bool is_listening(int descriptor) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

}  // namespace

std::set<int> epoll_sets() {
  std::set<int> found;
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    char target[64];
    const ssize_t size = readlinkat(dirfd(folder), entry->d_name, target, sizeof target);
    const auto number = parse_integer(entry->d_name, 0, 1 << 30);
    if (number && size > 0 && std::string_view(target, size) == "anon_inode:[eventpoll]")
      found.insert(static_cast<int>(*number));
  }
  closedir(folder);
  return found;
}

PausedListeners::PausedListeners(const std::set<int>& sockets, const std::set<int>& sets) {
  for (const int set : sets) {
    std::ifstream description("/proc/self/fdinfo/" + std::to_string(set));
    for (std::string line; std::getline(description, line);) {
      // "tfd:        7 events:       19 data: 7f2a3c0012e0  pos:0 ino:1b2c sdev:8"
      Watched one{.set = set};
      const int fields =
          std::sscanf(line.c_str(), "tfd: %d events: %" SCNx32 " data: %" SCNx64, &one.socket, &one.events, &one.data);
      if (fields == 3 && sockets.contains(one.socket) && is_listening(one.socket)) watched_.push_back(one);
    }
  }
  pause();
}

void PausedListeners::pause() const {
  for (const Watched& one : watched_) {
    epoll_event none{.events = 0, .data = {.u64 = one.data}};
    if (epoll_ctl(one.set, EPOLL_CTL_MOD, one.socket, &none) == 0) listen(one.socket, 0);
  }
}

void PausedListeners::resume() const {
  for (const Watched& one : watched_) {
    epoll_event before{.events = one.events, .data = {.u64 = one.data}};
    if (is_listening(one.socket) && listen(one.socket, kBacklog) == 0)
      epoll_ctl(one.set, EPOLL_CTL_MOD, one.socket, &before);
  }
}

}  // namespace torchbridge::train
