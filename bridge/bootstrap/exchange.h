// A way for the ranks of a job to exchange what the launcher does not give them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/bootstrap/all_gather.h"

namespace torchbridge {

// One connection to the other ranks. The destructor ends it; afterwards the process, or a program
// that it becomes by exec, is free to use the launcher's library itself. Not for several threads at
// once.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Collective: gives `value` (any bytes, not empty, at most 400) and returns the values of ranks
  // 0..world_size-1. Where ranks do not arrive the error contains the timeout, and those ranks
  // where they are known.
  virtual Result<std::vector<std::string>> all_gather(const std::string& value,
                                                      std::chrono::milliseconds timeout) = 0;
};

// By sockets of our own (all_gather.h): no launcher takes part, so that it works under any; on one
// node it takes well below a millisecond once all ranks have arrived. Where no other node answers
// within group.connect_timeout or half of the timeout, the ranks use `fallback`.
using FallbackExchange = std::function<Result<std::unique_ptr<Exchange>>()>;
std::unique_ptr<Exchange> make_group_exchange(BootstrapGroup group, FallbackExchange fallback = {});

}  // namespace torchbridge
