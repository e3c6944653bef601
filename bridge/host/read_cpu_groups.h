// Reads which CPUs of a machine share a socket or a cache.
#pragma once

#include <string>

#include "bridge/base/result.h"
#include "bridge/binding/topology.h"

namespace torchbridge {

// Adds sockets and caches to a topology of the machine below `root` (read_topology). Takes some
// milliseconds. Where the kernel does not show a group, the topology has none; an error names the
// file.
Status read_cpu_groups(const std::string& root, Topology& topology);

}  // namespace torchbridge
