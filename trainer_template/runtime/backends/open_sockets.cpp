#include "trainer_template/runtime/backends/open_sockets.h"

#include <dirent.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "bridge/base/env_map.h"
#include "bridge/net/address.h"

namespace torchbridge::train {
namespace {

// Numeric; empty where there is none.
std::string address_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST] = "";
  if (getsockname(descriptor, generic, &size) != 0 ||
      getnameinfo(generic, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return host;
}

}  // namespace

ino_t inode_of(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

bool is_listening(int descriptor) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 &&
         listening != 0;
}

Sockets open_sockets() {
  Sockets found;
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    const auto number = parse_integer(entry->d_name, 0, 1 << 30);
    if (const ino_t inode = number ? inode_of(static_cast<int>(*number)) : 0; inode != 0)
      found[static_cast<int>(*number)] = inode;
  }
  closedir(folder);
  return found;
}

NewListeners::NewListeners() {
  for (const auto& [descriptor, inode] : open_sockets()) before_.insert(inode);
}

std::set<std::string> NewListeners::interfaces() const {
  std::set<std::string> names;
  for (const auto& [descriptor, inode] : open_sockets()) {
    if (before_.contains(inode) || !is_listening(descriptor)) continue;
    const std::string address = address_of(descriptor);
    if (!is_numeric(address) || is_any_address(address)) continue;
    if (const std::string name = interface_towards(address); !name.empty()) names.insert(name);
  }
  return names;
}

}  // namespace torchbridge::train
