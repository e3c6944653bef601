// GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME against the interfaces of a host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// The interfaces of a host over which the processes of a job can reach each other; with
// `several_nodes` those that have an address that other nodes reach.
struct UsableInterfaces {
  std::vector<std::string> names;
  bool several_nodes = false;
  std::string host;
};

// An error that begins with `source`, "iface=eth9", where `name` is none of them.
Status check_interface(const std::string& source, std::string_view name,
                       const UsableInterfaces& usable);

// The same for each name in the two variables. NCCL's has beginnings of names, "=" before whole
// names, "^" before those to leave out, and is checked over several nodes alone: NCCL itself names
// it at once where none of the host's has such a name.
Status check_interface_variables(const EnvMap& environment, const UsableInterfaces& usable);

}  // namespace torchbridge
