#include "bridge/step/store_port.h"

#include "bridge/net/address.h"

namespace torchbridge {
namespace {

bool is_own_name(const std::string& name) {
  const std::string own = host_name();
  return name.substr(0, name.find('.')) == own.substr(0, own.find('.'));
}

}  // namespace

Result<std::string> address_of_node(const std::string& name, const HostNames& names) {
  auto address = numeric_address(name, names);
  return address || !is_own_name(name) ? address : reachable_address(names);
}

Result<Endpoint> store_endpoint_of(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                                   const HostNames& names) {
  // All nodes must derive the same port, so with several nodes this node's ephemeral range is not used.
  const bool one_node = map.node_count() == 1;
  auto endpoint = endpoint_of(facts, map, options, one_node ? ephemeral_ports() : PortRange{});
  if (!endpoint) return endpoint.error();
  const bool is_by_node_name = options.addr.is_by_node_name();
  auto numeric =
      is_by_node_name && !facts.first_address.empty() ? numeric_address(facts.first_address, names) : Error();
  if (!numeric)
    numeric = is_by_node_name ? address_of_node(endpoint->host, names) : numeric_address(endpoint->host, names);
  if (!numeric) {
    return Error{
        .message = "MASTER_ADDR=" + endpoint->host + ": " + numeric.error().message + ": choose another with addr=HOST",
        .only_here = true};  // the others would wait for the rank that does not resolve it
  }
  if (one_node || !is_loopback(*numeric)) {
    endpoint->host = *numeric;  // numeric, because other nodes' resolvers may not know the name
    return endpoint;
  }
  // A node's own /etc/hosts may give its name a loopback address, while other nodes resolve it to the right one.
  const auto reachable = is_own_name(endpoint->host) ? reachable_address(names) : Result<std::string>(Error{});
  if (reachable) {
    endpoint->host = *reachable;
  } else if (options.addr.kind == AddressRule::Kind::kHost) {
    return Error{"addr=" + options.addr.text + " is a loopback address (" + *numeric +
                 "), which other nodes cannot reach"};
  }
  return endpoint;
}

Result<Socket> reserve_store_port(const Endpoint& master, const HostNames& names) {
  const auto address = numeric_address(master.host, names);
  if (!address)
    return Error{"MASTER_ADDR=" + master.host + ": " + address.error().message + ": choose another with addr=HOST"};
  if (!is_own_address(*address)) {
    return Error{"MASTER_ADDR=" + master.host + " is not an address of " + host_name() +
                 ", where rank 0 runs: unset it, or give an address of that node with addr=HOST"};
  }
  const std::string port = "MASTER_PORT=" + std::to_string(master.port);
  auto reserved = reserve({address_to_listen_on(*address, names), master.port});
  if (!reserved && !port_is_free(master.port)) {
    return Error{port + " is already in use on " + host_name() + " (" + *address +
                 "), where rank 0 must listen: choose another with port=N, or end the program that uses it"};
  }
  if (!reserved)
    return Error{port + ": " + reserved.error().message + " (on " + host_name() + "): choose another with port=N"};
  return reserved;
}

}  // namespace torchbridge
