#include "bridge/host/small_memory.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstdint>

#include "bridge/base/message_text.h"
#include "bridge/host/text_file.h"

namespace torchbridge {
namespace {

// Docker's default is 64 MiB. NCCL takes some 10 MB for each pair of ranks of a node, and gloo its
// buckets.
constexpr std::uint64_t kEnoughSharedMemory = 1ULL << 30;

std::string small_shared_memory(const std::string& path) {
  struct statvfs found = {};
  if (statvfs(path.c_str(), &found) != 0) return {};
  const std::uint64_t size = std::uint64_t{found.f_blocks} * found.f_frsize;
  return size < kEnoughSharedMemory ? formatted("{} MiB", size >> 20) : "";
}

bool has_devices(const std::string& folder) {
  const auto names = names_in(folder);
  return names && !names->empty();
}

// Of ordinary users; a process with CAP_IPC_LOCK has no limit.
std::string small_locked_memory(const std::string& infiniband) {
  rlimit limit{};
  if (!has_devices(infiniband) || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return {};
  return formatted("{} KiB", limit.rlim_cur >> 10);
}

}  // namespace

SmallMemory small_memory(const SmallMemoryPaths& paths) {
  return {small_shared_memory(paths.shared_memory), small_locked_memory(paths.infiniband)};
}

}  // namespace torchbridge
