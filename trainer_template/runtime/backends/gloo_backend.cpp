#include "trainer_template/runtime/backends/gloo_backend.h"

#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <string_view>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/take_until.h"
#include "bridge/net/address.h"
#include "trainer_template/runtime/backends/c10d_versions.h"
#include "trainer_template/runtime/backends/open_sockets.h"
#include "trainer_template/runtime/backends/shared_gloo.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

// gloo has no function to end its connections at once. Their descriptors are the sockets that were
// opened while it was set up, without those that older listeners accepted meanwhile: the store's
// and the heartbeat's. The latter is closed as soon as all ranks have connected to it.
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
  // First: what a listener has accepted when it is closed is in the next.
  std::set<int> ports_before_;
  std::set<ino_t> before_;
  bool alone_ = false;
};

// Those of the program, else those of the variable.
std::vector<std::string> interfaces_of(const GlooOptions& options) {
  if (!options.interfaces.empty()) return options.interfaces;
  const char* variable = std::getenv("GLOO_SOCKET_IFNAME");
  std::vector<std::string> names;
  for (std::string_view list = variable ? variable : ""; !list.empty();)
    names.emplace_back(take_until(list, ','));
  return names;
}

std::vector<std::shared_ptr<gloo::transport::Device>> devices_for(const BackendRequest& request) {
  check_gloo_interfaces(request.options.gloo, false);
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  for (const std::string& name : interfaces_of(request.options.gloo))
    devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  if (devices.empty())
    devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(request.address));
  return devices;
}

// Only gloo's own collectives are compared (DETAIL) and recorded.
bool needs_gloos_own() {
  const char* record = std::getenv("TORCH_FR_BUFFER_SIZE");
  return c10d::debug_level() == c10d::DebugLevel::Detail ||
         (record && std::string_view(record) != "0");
}

}  // namespace

void check_gloo_interfaces(const GlooOptions& options, bool several_nodes) {
  const std::string source =
      options.interfaces.empty() ? "GLOO_SOCKET_IFNAME='" : "gloo's interface '";
  const UsableInterfaces interfaces = usable_interfaces(several_nodes);
  for (const std::string& name : interfaces_of(options)) {
    const auto usable = check_interface(source + printable(name) + "'", name, interfaces);
    if (!usable) throw TrainError(usable.error().message);
  }
}

MadeBackend make_gloo(const BackendRequest& request) {
  NewSockets sockets;  // before the devices, whose listeners are gloo's too
  auto options = c10d::ProcessGroupGloo::Options::create(request.connect_timeout);
  options->devices = devices_for(request);
  options->threads = request.options.gloo.threads > 0
                         ? request.options.gloo.threads
                         : static_cast<int>(options->devices.size()) * 2;
  options->global_ranks_in_group = request.ranks;
  options->group_name = request.group_name;
  auto gloo = c10::make_intrusive<SharedGloo>(request.store, request.rank, request.size, options);
  if (request.size > 1)
    gloo->share(request.store,
                request.options.gloo.shared_memory.value_or(false) && !needs_gloos_own());
  gloo->setTimeout(request.timeout);
  agree_on_sequence_numbers(*gloo);
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
