// Whether the service at the store's address is a store.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "bridge/core/endpoint.h"

namespace torchbridge::train {

enum class StoreAnswer {
  kReady,
  kUnreachable,  // no connection was accepted and kept until the deadline
  kForeign,      // the service does not speak TCPStore's protocol
  kNoAnswer,     // the service accepts the connection and sends nothing for `answer_timeout`
};

struct StoreProbe {
  StoreAnswer answer = StoreAnswer::kReady;
  std::string detail;  // for a message: what happened last
};

// Tries until a TCPStore or another service answers at `address` (numeric), or the time is over.
// TCPStore itself would wait forever for the answer of another service. Every few seconds without
// one `look_again` gives the host's address, which may be another one by then. Without it there is
// no proxy in front of the host: a service that closes twenty connections in a row is no store.
StoreProbe wait_for_store(Endpoint address, std::chrono::milliseconds timeout,
                          std::chrono::milliseconds answer_timeout = std::chrono::seconds(10),
                          const std::function<std::string()>& look_again = {});

}  // namespace torchbridge::train
