#include "bridge/host/cpu_affinity.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <vector>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

Status confine(const CpuSet& cpus) {
  const int count = cpus.back() + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
      CPU_ALLOC(count), [](cpu_set_t* set) { CPU_FREE(set); });
  const std::size_t size = CPU_ALLOC_SIZE(count);
  if (!mask)
    return Error{formatted("cannot use CPUs {}: {}", cpu_list_text(cpus), std::strerror(ENOMEM))};
  CPU_ZERO_S(size, mask.get());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), size, mask.get());
  if (sched_setaffinity(0, size, mask.get()) == 0) return Ok{};
  return Error{formatted("cannot use CPUs {}: {}", cpu_list_text(cpus), std::strerror(errno))};
}

// glibc has no function for this system call; libnuma's set_mempolicy is the same.
Status prefer_memory(int node) {
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  const auto bit = static_cast<std::size_t>(node);
  std::vector<unsigned long> nodes(bit / kBits + 1);
  nodes[bit / kBits] = 1UL << bit % kBits;
  // The kernel reads one bit less than the given number.
  if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), nodes.size() * kBits + 1) == 0)
    return Ok{};
  // EINVAL: the node has no memory, or the task's cpuset forbids it.
  if (errno == ENOSYS || errno == EPERM || errno == EINVAL) return Ok{};
  return Error{formatted("cannot take memory from NUMA node {}: {}", node, std::strerror(errno))};
}

}  // namespace

Status set_affinity(const CpuSet& cpus, int memory_node) {
  if (!cpus.empty()) {
    if (const auto confined = confine(cpus); !confined) return confined;
  }
  return memory_node < 0 ? Status(Ok{}) : prefer_memory(memory_node);
}

}  // namespace torchbridge
