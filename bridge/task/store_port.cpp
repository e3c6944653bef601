#include <torchbridge/task/store_port.h>

#include <torchbridge/net/address.h>

namespace torchbridge {

Result<Endpoint> store_endpoint_of(const LaunchFacts& facts, const TaskMap& map, const Options& options) {
  auto endpoint = endpoint_of(facts, map, options, ephemeral_ports());
  if (!endpoint) return endpoint.error();
  // The same number on every node, so that it does not matter whose resolver knows the name. A loopback address is what a
  // node's own /etc/hosts may give for its name: for the others it would be wrong, so the name stays.
  const auto numeric = numeric_address(endpoint->host);
  if (numeric && (map.node_count() == 1 || !is_loopback(*numeric))) endpoint->host = *numeric;
  return endpoint;
}

Result<Socket> reserve_store_port(const Endpoint& master) {
  const auto address = numeric_address(master.host);
  if (!address) return Error{"MASTER_ADDR=" + master.host + ": " + address.error().message + ": choose another with addr=HOST"};
  if (!is_own_address(*address)) {
    return Error{"MASTER_ADDR=" + master.host + " is no address of " + host_name() +
                 ", where rank 0 runs: unset it, or choose one of rank 0's with addr=HOST"};
  }
  if (port_is_free(master.port)) {
    if (auto reserved = reserve({*address, master.port})) return reserved;
  }
  return Error{"MASTER_PORT=" + std::to_string(master.port) + " is already in use on " + host_name() + " (" + *address +
               "), where rank 0 must listen: choose another with port=N, or end the program that uses it"};
}

}  // namespace torchbridge
