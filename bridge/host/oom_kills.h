// How often this machine's kernel has ended a process for lack of memory.
#pragma once

#include <cstdint>
#include <string>

namespace torchbridge {

// Since the machine started, in all memory cgroups together: the counter oom_kill of
// root/proc/vmstat (Linux 4.13 and later). 0 where the counter cannot be read. `root` is "" for
// this machine and ends without a slash.
std::int64_t oom_kills(const std::string& root = "");

}  // namespace torchbridge
