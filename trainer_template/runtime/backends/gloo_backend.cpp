#include "trainer_template/runtime/backends/gloo_backend.h"

#include <dirent.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include "bridge/base/env_map.h"
#include "bridge/net/address.h"
#include "trainer_template/runtime/backends/shared_gloo.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

bool is_listening(int descriptor) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

// Descriptors and inodes: a number may be that of another socket later.
using Sockets = std::map<int, ino_t>;

// 0 where it is no socket.
ino_t inode_of(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
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

// gloo has no function to end its connections at once. Their descriptors are the sockets that were opened while it was
// set up, without those that older listeners accepted meanwhile: the store's and the heartbeat's. The latter is closed
// as soon as all ranks have connected to it.
class NewSockets {
 public:
  NewSockets() : ports_before_(ports_listened_on()) {
    for (const auto& [descriptor, inode] : open_sockets()) before_.insert(inode);
    alone_ = ++watchers_ == 1;
  }
  ~NewSockets() { --watchers_; }

  Sockets now() {
    Sockets found;
    // Ranks may be threads of one process: then it is not known which rank opened a socket.
    if (!alone_ || watchers_ != 1) return found;
    for (const auto& [descriptor, inode] : open_sockets()) {
      const bool is_new = !before_.contains(inode) && !ports_before_.contains(port_of(descriptor));
      if (is_new && !is_listening(descriptor)) found[descriptor] = inode;
    }
    return found;
  }

 private:
  static int port_of(int descriptor) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
    // The port has the same offset in both families.
    return address.ss_family == AF_INET || address.ss_family == AF_INET6
               ? reinterpret_cast<const std::uint16_t*>(&address)[1]
               : -1;
  }
  static std::set<int> ports_listened_on() {
    std::set<int> ports;
    for (const auto& [descriptor, inode] : open_sockets()) {
      if (is_listening(descriptor)) ports.insert(port_of(descriptor));
    }
    return ports;
  }

  static inline std::atomic<int> watchers_{0};
  std::set<int> ports_before_;  // first: what a listener has accepted when it is closed is in the next
  std::set<ino_t> before_;
  bool alone_ = false;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::string interfaces_here() {
  std::string names;
  struct if_nameindex* all = if_nameindex();
  for (auto* one = all; one && one->if_index != 0; ++one)
    names += (names.empty() ? "" : ", ") + std::string(one->if_name);
  if (all) if_freenameindex(all);
  return names;
}

std::vector<std::shared_ptr<gloo::transport::Device>> devices_for(const BackendRequest& request) {
  const char* variable = std::getenv("GLOO_SOCKET_IFNAME");
  const bool by_program = !request.options.gloo.interfaces.empty();
  const std::vector<std::string> names = by_program ? request.options.gloo.interfaces : split(variable ? variable : "");
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  for (const std::string& name : names) {
    if (if_nametoindex(name.c_str()) == 0) {
      throw TrainError(std::string(by_program ? "gloo's interface '" : "GLOO_SOCKET_IFNAME='") + printable(name) +
                       "': " + host_name() + " has no such interface; it has " + interfaces_here());
    }
    devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (devices.empty()) devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(request.address));
  return devices;
}

// Only gloo's own collectives are compared (DETAIL) and recorded.
bool needs_gloos_own() {
  const char* record = std::getenv("TORCH_FR_BUFFER_SIZE");
  return c10d::debug_level() == c10d::DebugLevel::Detail || (record && std::string_view(record) != "0");
}

}  // namespace

MadeBackend make_gloo(const BackendRequest& request) {
  NewSockets sockets;  // before the devices, whose listeners are gloo's too
  auto options = c10d::ProcessGroupGloo::Options::create(request.connect_timeout);
  options->devices = devices_for(request);
  options->threads =
      request.options.gloo.threads > 0 ? request.options.gloo.threads : static_cast<int>(options->devices.size()) * 2;
  options->global_ranks_in_group = request.ranks;
  options->group_name = request.group_name;
  auto gloo = c10::make_intrusive<SharedGloo>(request.store, request.rank, request.size, options);
  if (request.size > 1)
    gloo->share(request.store, request.options.gloo.shared_memory.value_or(false) && !needs_gloos_own());
  gloo->setTimeout(request.timeout);
  gloo->setSequenceNumberForGroup();
  return {gloo, [opened = sockets.now(), region = gloo->region()] {
            for (const auto& [descriptor, inode] : opened) {
              if (inode_of(descriptor) == inode) ::shutdown(descriptor, SHUT_RDWR);
            }
            if (region) region->abort();
          }};
}

bool shares_memory(const c10d::Backend& backend) {
  const auto* gloo = dynamic_cast<const SharedGloo*>(&backend);
  return gloo && gloo->region();
}

}  // namespace torchbridge::train
