#include "bridge/agent/rounds.h"

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/net/address.h"

namespace torchbridge {

Result<StoreReservation> reserve_store(const std::string& host, int port, const std::string& option,
                                       int own) {
  const auto address = numeric_address(host);
  const std::string named = (option.empty() ? "" : option + " ") + printable(host);
  if (!address) return Error{named + ": " + address.error().message};
  if (is_any_address(*address) || !is_own_address(*address))
    return Error{formatted("{} is not an address of {}", named, host_name())};
  // Only where it must: a store at a loopback address is for this node.
  auto socket =
      reserve({is_loopback(*address) ? *address : address_to_listen_on(*address), port}, own);
  if (!socket && port != 0 && !port_is_free(port)) {
    return Error{
        formatted("--master-port {} is in use on {}: leave the option out for a free one, or end "
                  "the program that uses it",
                  port, host_name())};
  }
  if (!socket) return socket.error();
  const auto bound = bound_port(*socket);
  if (!bound) return bound.error();
  return StoreReservation{std::move(*socket), {*address, *bound}};
}

}  // namespace torchbridge
