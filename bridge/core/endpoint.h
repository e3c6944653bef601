// Where the store of a job listens: MASTER_ADDR and MASTER_PORT.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

struct LaunchFacts;
struct LaunchOptions;
enum class RankRule;
class TaskMap;

// `host` is a name or a numeric IPv4 or IPv6 address, without brackets.
struct Endpoint {
  std::string host;
  int port = 0;

  bool operator==(const Endpoint&) const = default;
};

// "HOST" or "HOST:PORT", with an IPv6 address in brackets; port 0 where there is none.
Result<Endpoint> parse_endpoint(const std::string& text);
// Of "HOST", where an IPv6 address may stand in brackets.
Status check_host(const std::string& text);
// "HOST:PORT", which parse_endpoint reads.
std::string with_port(const Endpoint& endpoint);
// An IPv6 address may stand in brackets where a port could follow; anything else gives itself.
std::string without_brackets(const std::string& host);

// Ports [low, high] that the kernel gives to outgoing connections (net.ipv4.ip_local_port_range).
struct PortRange {
  int low = 32768;
  int high = 60999;

  bool operator==(const PortRange&) const = default;
};

// "32768\t60999\n", as in /proc/sys/net/ipv4/ip_local_port_range.
Result<PortRange> parse_port_range(std::string_view text);

// The node that holds RANK 0. Every task must get the same result, so facts that only this node has
// are used for an error alone, where they contradict the placement. An error too where the launcher
// placed ranks one by one, its numbering is kept, and node_of_rank is not known.
Result<int> master_node_of(const LaunchFacts& facts, const TaskMap& map, RankRule ranks);

// The node and port on which rank 0 serves the store, by the rules of `addr` and `port`. With
// addr=auto the host is the name of rank 0's node: the caller resolves it. The port is, in this
// order: the one of port=N; the first port reserved for the step; else one derived from job, step
// and restart within port=LO-HI, or within [15000, 32000) without the node's ephemeral ports.
Result<Endpoint> endpoint_of(const LaunchFacts& facts, const TaskMap& map,
                             const LaunchOptions& options, PortRange ephemeral);

}  // namespace torchbridge
