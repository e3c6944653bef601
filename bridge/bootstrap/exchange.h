// A way for the ranks of a job to tell each other what the launcher did not tell them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bridge/bootstrap/all_gather.h"
#include "bridge/base/result.h"

namespace torchbridge {

// One connection to the other ranks; ended by the destructor, after which the process, or a program
// that it becomes by exec, is free to use the launcher's library itself. Not for several threads at
// once.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Collective: gives `value` (any bytes, not empty, at most 400) and returns the values of ranks
  // 0..world_size-1. Where ranks never came the error says how long was waited, and which they are
  // if that can be known.
  virtual Result<std::vector<std::string>> all_gather(const std::string& value, std::chrono::milliseconds timeout) = 0;
};

// By sockets of our own (all_gather.h): no launcher takes part, so that it works under any, on one
// node in well below a millisecond once all have come. Where no other node was heard of within
// group.patience or half of the time, the ranks ask `otherwise`.
using Otherwise = std::function<Result<std::unique_ptr<Exchange>>()>;
std::unique_ptr<Exchange> exchange_within(Group group, Otherwise otherwise = {});

}  // namespace torchbridge
