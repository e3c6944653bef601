// Where the store of a job is reached from here, and whether what answers there is a store at all.
#pragma once

#include <chrono>
#include <string>

#include <torchbridge/core/endpoint.h>
#include <torchbridge/core/result.h>

namespace torchbridge::train {

// Whether an interface of this machine, as this process sees it, has the address.
bool is_own_address(const std::string& numeric_address);

// The address of this machine that packets to `numeric_address` leave from. Where that is loopback although the job has
// other nodes (Debian gives a host's own name 127.0.1.1), the first other address that is up.
Result<std::string> address_towards(const std::string& numeric_address, bool several_nodes);

// What waiting for the store found.
enum class StoreAnswer {
  kReady,
  kNobody,   // until the deadline nobody accepted a connection
  kForeign,  // something accepted it that does not speak TCPStore's protocol, or says nothing for ten seconds
};

struct StoreProbe {
  StoreAnswer answer = StoreAnswer::kReady;
  std::string detail;  // for a message: what happened last
};

// Tries until a TCPStore answers at `address` (numeric), something else does, or the time is over. TCPStore itself would
// wait for the answer of a foreign service for ever.
StoreProbe wait_for_store(const Endpoint& address, std::chrono::milliseconds timeout);

}  // namespace torchbridge::train
