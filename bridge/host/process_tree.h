// The ancestors of this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torchbridge {

struct ProcessEntry {
  std::int64_t id = 0;
  std::string name;  // at most 15 bytes, as the kernel keeps it
};

// This process first, then its parent and so on, as far as /proc shows them.
std::vector<ProcessEntry> this_and_ancestors();

}  // namespace torchbridge
