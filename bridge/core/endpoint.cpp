#include "bridge/core/endpoint.h"

#include "bridge/base/env_map.h"
#include "bridge/base/host_text.h"
#include "bridge/base/message_text.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/task_map.h"

namespace torchbridge {
namespace {

constexpr PortRange kDerived{
    15000, 31999};  // below the kernel's default ephemeral range, above most services
constexpr PortRange kLower{5000, 14999};  // where the ephemeral range leaves nothing of kDerived

// FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/): stable over machines and versions,
// as all ranks must agree.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Steps of one job get different ports, because the step is added after the hash of the job.
std::uint64_t offset_of(const LaunchFacts& facts) {
  const std::uint64_t step =
      static_cast<std::uint64_t>(parse_integer(facts.step_id, 0, INT64_MAX).value_or(0));
  return hash_of(facts.job_id) % 1'000'003 + step +
         7919 * static_cast<std::uint64_t>(facts.restart_count);
}

// The part of `range` outside the ephemeral ports: the part below them, or where that is empty,
// above them.
PortRange without(PortRange range, PortRange ephemeral) {
  if (range.high < ephemeral.low || range.low > ephemeral.high) return range;
  if (range.low < ephemeral.low) return {range.low, ephemeral.low - 1};
  return {ephemeral.high + 1, range.high};
}

Result<int> port_of(const LaunchFacts& facts, const PortRule& rule, PortRange ephemeral) {
  if (rule.automatic() && !facts.reserved_ports.empty()) return facts.reserved_ports.front();
  if (!rule.automatic() && rule.low == rule.high) return rule.low;
  PortRange range{rule.low, rule.high};
  if (rule.automatic()) {
    range = without(kDerived, ephemeral);
    if (range.low > range.high) range = without(kLower, ephemeral);
    if (range.low > range.high) {
      return Error{
          formatted("no port is left outside the ephemeral range {}-{}: give one with "
                    "MASTER_PORT=N or port=LO-HI",
                    ephemeral.low, ephemeral.high)};
    }
  }
  const auto size = static_cast<std::uint64_t>(range.high - range.low) + 1;
  return range.low + static_cast<int>(offset_of(facts) % size);
}

Result<std::string> host_of(const LaunchFacts& facts, const TaskMap& map,
                            const LaunchOptions& options) {
  const AddressRule& rule = options.addr;
  if (rule.kind == AddressRule::Kind::kHost) return rule.text;
  if (facts.nodes.empty())
    return Error{
        formatted("{}: the names of the nodes are not known: give addr=HOST", facts.launcher)};
  const auto node = master_node_of(facts, map, options.ranks);
  if (!node) return node.error();
  const std::string suffix = rule.kind == AddressRule::Kind::kSuffix ? rule.text : "";
  return facts.nodes[*node] + suffix;
}

}  // namespace

std::string without_brackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

std::string with_port(const Endpoint& endpoint) {
  const bool is_ipv6 = endpoint.host.find(':') != endpoint.host.npos;
  return (is_ipv6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" +
         std::to_string(endpoint.port);
}

Result<Endpoint> parse_endpoint(const std::string& text) {
  constexpr int kMostPort = 65535;
  const auto colon = text.rfind(':');
  const bool has_port = colon != text.npos && !text.ends_with(']');
  const auto port =
      has_port ? parse_integer(std::string_view(text).substr(colon + 1), 0, kMostPort) : 0;
  const std::string written = text.substr(0, has_port ? colon : text.npos);
  const std::string host = without_brackets(written);
  const bool is_ipv6 = host.find(':') != host.npos;
  const bool is_host = is_host_text(host) && (host != written) == is_ipv6;
  if (is_host && port) return Endpoint{host, static_cast<int>(*port)};
  return Error{formatted("'{}': expected HOST or HOST:PORT, with an IPv6 address in brackets",
                         printable(text))};
}

Status check_host(const std::string& text) {
  if (is_host_text(without_brackets(text))) return Ok{};
  return Error{
      formatted("'{}': expected a host name or an address, without a port", printable(text))};
}

Result<PortRange> parse_port_range(std::string_view text) {
  const auto error = [&] {
    return Error{formatted("port range '{}': expected two numbers, LOW HIGH", printable(text))};
  };
  const auto low_end = text.find_first_of(" \t");
  const auto high_start = text.find_first_not_of(" \t", low_end);
  if (low_end == std::string_view::npos || high_start == std::string_view::npos) return error();
  const auto high_end = text.find_first_of(" \t\n", high_start);
  const auto low = parse_integer(text.substr(0, low_end), 1, 65535);
  const auto high = parse_integer(
      text.substr(high_start,
                  high_end == std::string_view::npos ? high_end : high_end - high_start),
      1, 65535);
  if (!low || !high || *low > *high) return error();
  return PortRange{static_cast<int>(*low), static_cast<int>(*high)};
}

Result<int> master_node_of(const LaunchFacts& facts, const TaskMap& map, RankRule ranks) {
  if (ranks == RankRule::kBlock) return 0;
  if (map.complete()) return map.node_of(0);
  // Each component of a heterogeneous step may have a distribution of its own. All distributions
  // begin on the first node.
  const bool contradicted = map.knows(0) ? map.node_of(0) != 0 : facts.node_rank == 0;
  if (facts.placement != Placement::kUnknown && !contradicted) return 0;
  return Error{
      formatted("{}: the node of rank 0 is not known (--distribution=arbitrary): give ranks=block, "
                "which numbers the ranks node by node",
                facts.launcher)};
}

Result<Endpoint> endpoint_of(const LaunchFacts& facts, const TaskMap& map,
                             const LaunchOptions& options, PortRange ephemeral) {
  auto host = host_of(facts, map, options);
  if (!host) return host.error();
  const auto port = port_of(facts, options.port, ephemeral);
  if (!port) return port.error();
  return Endpoint{std::move(*host), *port};
}

}  // namespace torchbridge
