// Processes by their family: ancestors of this one, children of any.
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

// The children of a process as far as /proc shows them, those that have ended and are not yet waited for included.
std::vector<int> children_of(int id);

// The CPU time that these processes and all below them have used, in seconds; those that have ended count as far as
// their parent has waited for them.
double cpu_seconds_of(const std::vector<int>& ids);

}  // namespace torchbridge
