// Listening sockets of a library that accept nobody any more. gloo 2.11 keeps its own open until the group ends, keeps
// all who connect, and ends the process when it has no descriptor for one more.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace torchbridge::train {

// The epoll sets that this process has open now.
std::set<int> epoll_sets();

// The library's thread keeps its descriptors. Its epoll set no longer watches the socket for connections, so that it
// accepts none, and the kernel queues one at most: who else connects waits until the connection times out. Connections
// that were accepted before are not touched.
class PausedListeners {
 public:
  PausedListeners() = default;
  // Pauses those of `sockets` that listen and that one of `sets` watches. Where /proc cannot be read, none.
  PausedListeners(const std::set<int>& sockets, const std::set<int>& sets);

  // They accept connections again, and no more. Both may be called when the sockets are closed.
  void resume() const;
  void pause() const;
  bool empty() const { return watched_.empty(); }

 private:
  struct Watched {
    int set = -1, socket = -1;
    std::uint32_t events = 0;
    std::uint64_t data = 0;  // of the library
  };
  std::vector<Watched> watched_;
};

}  // namespace torchbridge::train
