// Where the ranks of a step are, asked by one task for all of its node.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <torchbridge/core/result.h>

#include "shared_memory.h"

namespace torchbridge {

// The number of each rank's node.
using NodeOfRank = std::vector<int>;

class SharedPlacement {
 public:
  SharedPlacement() = default;
  // In slurmstepd, before it forks the tasks: room for the placement of `ranks` ranks.
  explicit SharedPlacement(std::size_t ranks);

  // The first task that comes calls `ask`, which gives `ranks` numbers, none or an error; the others wait for it and get the same. Where the
  // first dies meanwhile the next one asks. Where there is no memory every task asks for itself.
  Result<NodeOfRank> ask_once(const std::function<Result<NodeOfRank>()>& ask) const;

 private:
  struct Shared;
  Shared* shared() const { return static_cast<Shared*>(memory_.data()); }

  SharedMemory memory_;
  std::size_t ranks_ = 0;
};

}  // namespace torchbridge
