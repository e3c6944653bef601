// Where the store of a job listens: MASTER_ADDR and MASTER_PORT.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bridge/core/launch_options.h"
#include "bridge/base/result.h"
#include "bridge/core/task_map.h"

namespace torchbridge {

// `host` is a name or a numeric IPv4 or IPv6 address, without brackets.
struct Endpoint {
  std::string host;
  int port = 0;

  bool operator==(const Endpoint&) const = default;
};

// Ports [low, high] that the kernel hands out by itself to outgoing connections (net.ipv4.ip_local_port_range).
struct PortRange {
  int low = 32768;
  int high = 60999;

  bool operator==(const PortRange&) const = default;
};

// "32768\t60999\n", as in /proc/sys/net/ipv4/ip_local_port_range.
Result<PortRange> parse_port_range(std::string_view text);

// The node that will hold RANK 0. Every task must come to the same answer, so what this node alone knows does not
// count, but for an error where it contradicts the placement. An error too where the launcher placed ranks one by one,
// its numbering is kept, and nobody has told node_of_rank.
Result<int> master_node_of(const LaunchFacts& facts, const TaskMap& map, RankRule ranks);

// The node and port on which rank 0 serves the store, by the rules of `addr` and `port`. A host that the rules leave
// to a look-up (auto) is the name of rank 0's node: turning it into a number is the caller's, for it needs the
// resolver. Ports, in this order: the one asked for; the first port reserved for the step; else one derived from job,
// step and restart within the range asked for, or within [15000, 32000) less the node's ephemeral ports.
Result<Endpoint> endpoint_of(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                             PortRange ephemeral);

}  // namespace torchbridge
