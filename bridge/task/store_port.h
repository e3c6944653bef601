// MASTER_PORT on the node of rank 0, taken before the program starts.
#pragma once

#include <torchbridge/core/endpoint.h>
#include <torchbridge/core/result.h>
#include <torchbridge/net/socket.h>

namespace torchbridge {

// On rank 0: the port, bound for the program to inherit (see reserve). An error where another program of this host has it.
// Not open where the address is not of this host: the store is then somebody else's.
Result<Socket> reserve_store_port(const Endpoint& master);

}  // namespace torchbridge
