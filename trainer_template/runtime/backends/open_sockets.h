// The sockets of this process, by which a backend's own are found: c10d does not give them.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>

namespace torchbridge::train {

// Descriptors and inodes: a number may be that of another socket later.
using Sockets = std::map<int, ino_t>;

Sockets open_sockets();
// 0 where it is no socket.
ino_t inode_of(int descriptor);
bool is_listening(int descriptor);

// Finds the interfaces on which sockets listen that were opened since this was made.
class NewListeners {
 public:
  NewListeners();
  // Not those that listen on all interfaces.
  std::set<std::string> interfaces() const;

 private:
  std::set<ino_t> before_;
};

}  // namespace torchbridge::train
