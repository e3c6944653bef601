#include "bridge/step/store_port.h"

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/host/process_tree.h"
#include "bridge/net/address.h"

namespace torchbridge {
namespace {

bool is_own_name(const std::string& name) {
  const std::string own = host_name();
  return name.substr(0, name.find('.')) == own.substr(0, own.find('.'));
}

constexpr const char* kLoopback = "127.0.0.1";

std::string not_resolved(const Endpoint& master, const Error& error) {
  return formatted(
      "MASTER_ADDR={}: {}: give that node's, as in --torch-env=addr=10.1.0.5 or "
      "MASTER_ADDR=10.1.0.5",
      master.host, error.message);
}

// A program of this run holds a name while it has the port, and so do its children.
struct Reservation {
  std::string name;       // for this process to claim
  bool has_left = false;  // earlier ones that have reserved the port do not count
};

// Does not count: a process that has ended, whose children still have the port; and one that has
// started this one, or that has other process ids, as the outer one of a container that passes on
// no descriptors. That one once: the next to come meets the name of this process behind it.
Reservation reservation_of(const std::string& run_id, int port) {
  Reservation own{formatted("port/{}/{}", run_id, port)};
  while (const auto holder = holder_of_name(own.name)) {
    const auto processes = this_and_ancestors();
    const bool is_above =
        *holder == 0 || std::ranges::find(processes, *holder, &ProcessEntry::id) != processes.end();
    if (is_above ? own.has_left : start_ticks(*holder) != 0) return {own.name, false};
    own = {own.name + "/" + std::to_string(*holder), true};
  }
  // Of several that start at once below the one that has the port, the first shares it.
  own.has_left = own.has_left && claim_name(own.name);
  return own;
}

}  // namespace

Result<std::string> address_of_node(const std::string& name, bool is_here, const HostNames& names) {
  auto address = numeric_address(name, names);
  return address || !(is_here || is_own_name(name)) ? address : reachable_address(names);
}

Result<Endpoint> store_endpoint_of(const LaunchFacts& facts, const TaskMap& map,
                                   const LaunchOptions& options, const HostNames& names) {
  // All nodes must derive the same port, so with several nodes this node's ephemeral range is not
  // used.
  const bool one_node = map.node_count() == 1;
  auto endpoint = endpoint_of(facts, map, options, one_node ? ephemeral_ports() : PortRange{});
  if (!endpoint) return endpoint.error();
  const bool is_by_node_name = options.addr.is_by_node_name();
  const auto master = master_node_of(facts, map, options.ranks);
  const bool is_here = is_by_node_name && master && *master == facts.node_rank;
  auto numeric = is_by_node_name && !facts.first_address.empty()
                     ? numeric_address(facts.first_address, names)
                     : Error();
  if (!numeric)
    numeric = is_by_node_name ? address_of_node(endpoint->host, is_here, names)
                              : numeric_address(endpoint->host, names);
  if (!numeric && is_by_node_name) {
    const auto given = facts.node_addresses.find(endpoint->host);
    if (given != facts.node_addresses.end()) numeric = numeric_address(given->second, names);
    if (one_node && !numeric) numeric = std::string(kLoopback);
  }
  if (!numeric && map.world_size() == 1) return endpoint;  // reserve_store_port() has the error
  if (!numeric)  // the others would wait for the rank that does not resolve it
    return Error{.message = not_resolved(*endpoint, numeric.error()), .only_here = true};
  if (one_node || !is_loopback(*numeric)) {
    endpoint->host = *numeric;  // numeric, because other nodes' resolvers may not know the name
    return endpoint;
  }
  // A node's own /etc/hosts may give its name a loopback address, while other nodes resolve it to
  // the right one.
  const auto reachable = is_here || is_own_name(endpoint->host) ? reachable_address(names)
                                                                : Result<std::string>(Error{});
  if (reachable) {
    endpoint->host = *reachable;
  } else if (options.addr.kind == AddressRule::Kind::kHost) {
    return Error{formatted("addr={} is a loopback address ({}), which other nodes cannot reach",
                           options.addr.text, *numeric)};
  }
  return endpoint;
}

Result<Socket> reserve_store_port(const Endpoint& master, const std::string& run_id,
                                  const HostNames& names) {
  const auto address = numeric_address(master.host, names);
  if (!address) return Error{not_resolved(master, address.error())};
  if (!is_own_address(*address)) {
    return Error{formatted(
        "MASTER_ADDR={} is not an address of {}, where rank 0 runs: unset it, or give one "
        "of that node, as in --torch-env=addr=10.1.0.5",
        master.host, host_name())};
  }
  const Reservation own = reservation_of(run_id, master.port);
  auto reserved = reserve({address_to_listen_on(*address, names), master.port}, -1, own.has_left);
  if (reserved) claim_name(own.name);
  if (!reserved && !port_is_free(master.port)) {
    return Error{
        formatted("MASTER_PORT={} is already in use on {} ({}), where rank 0 must listen: choose "
                  "another with MASTER_PORT=N, or end that program",
                  master.port, host_name(), *address)};
  }
  if (!reserved)
    return Error{formatted("MASTER_PORT={}: {} (on {}): choose another with MASTER_PORT=N",
                           master.port, reserved.error().message, host_name())};
  return reserved;
}

}  // namespace torchbridge
