#include <torchbridge/task/store_port.h>

#include <algorithm>

#include <torchbridge/net/address.h>

namespace torchbridge {
namespace {

bool is_address_of_this_host(const std::string& address) {
  const auto own = local_addresses();
  return is_loopback(address) || std::find(own.begin(), own.end(), address) != own.end();
}

}  // namespace

Result<Socket> reserve_store_port(const Endpoint& master) {
  const auto address = numeric_address(master.host);
  if (!address) return address.error();
  if (!is_address_of_this_host(*address)) return Socket();
  if (port_is_free(master.port)) {
    if (auto reserved = reserve({*address, master.port})) return reserved;
  }
  return Error{"MASTER_PORT=" + std::to_string(master.port) + " is already in use on " + host_name() + " (" + *address +
               "), where rank 0 must listen: choose another with port=N, or end the program that uses it"};
}

}  // namespace torchbridge
