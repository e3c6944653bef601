// Whether what answers at the store's address is a store at all.
#pragma once

#include <chrono>
#include <string>

#include "bridge/core/endpoint.h"

namespace torchbridge::train {

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

// Tries until a TCPStore answers at `address` (numeric), something else does, or the time is over. TCPStore itself
// would wait for the answer of a foreign service for ever.
StoreProbe wait_for_store(const Endpoint& address, std::chrono::milliseconds timeout);

}  // namespace torchbridge::train
