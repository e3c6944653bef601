// Limits of a node's memory with which gloo or NCCL fail later, in a line of their own.
#pragma once

#include <string>

namespace torchbridge {

struct SmallMemoryPaths {
  std::string shared_memory = "/dev/shm";
  // Where the kernel lists InfiniBand and RoCE devices.
  std::string infiniband = "/sys/class/infiniband";
};

// As "64 MiB"; empty where it is enough, or where nothing will use it.
struct SmallMemory {
  std::string shared;  // the size of /dev/shm
  std::string locked;  // how much memory this process may lock

  bool operator==(const SmallMemory&) const = default;
};
SmallMemory small_memory(const SmallMemoryPaths& paths = {});

}  // namespace torchbridge
