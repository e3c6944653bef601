// The GPUs, NUMA nodes and cores of one machine as a value, and which of them are close to each
// other.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/binding/cpu_set.h"

namespace torchbridge {

// "0000:07:00.0", in the order in which nvidia-smi and CUDA_DEVICE_ORDER=PCI_BUS_ID number GPUs.
struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0, function = 0;

  std::string text() const;
  auto operator<=>(const PciAddress&) const = default;
};

Result<PciAddress> parse_pci_address(std::string_view text);

struct Gpu {
  PciAddress address;
  int numa_node = -1;  // -1: not known
  CpuSet local_cpus;   // empty: not known
  int minor = -1;      // N of /dev/nvidiaN, which is not the GPU's index; -1: not known
  std::string uuid;    // "GPU-..."; empty: not known
  bool usable = true;  // false: not in the driver's list, or this process may not open it
};

struct NumaNode {
  int id = 0;
  CpuSet cpus;  // empty for a node that is memory only
  // To each of Topology::nodes, 10 being the node itself; empty: not known.
  std::vector<int> distances;
};

struct Topology {
  std::vector<Gpu> gpus;        // ascending by address
  std::vector<NumaNode> nodes;  // ascending by id
  // Hardware threads that share a core; empty: each CPU is a core of its own.
  std::vector<CpuSet> cores;
  // Empty: not known, or not asked for (read_cpu_groups).
  std::vector<CpuSet> sockets;  // CPUs of one socket
  std::vector<CpuSet> caches;   // CPUs that share a cache of the last level

  // The GPUs that CUDA counts in a process that may use these GPUs and has no CUDA_VISIBLE_DEVICES,
  // with CUDA_DEVICE_ORDER=PCI_BUS_ID.
  std::vector<const Gpu*> usable_gpus() const;

  // The GPU that a name in CUDA_VISIBLE_DEVICES means: an index, a UUID or an unambiguous beginning
  // of one, or a MIG device that names its GPU ("MIG-GPU-.../1/0"). Null where it is not known, as
  // for "MIG-<uuid>".
  const Gpu* gpu_named(std::string_view name) const;

  // From the nearest of the CPUs to the GPU, in the kernel's units: 10 is local. 10 as well where
  // it is not known, so that all GPUs are equal.
  int distance(const CpuSet& cpus, const Gpu& gpu) const;

  // The CPUs of the GPU's NUMA node, or those that the kernel calls local to it; empty where they
  // are not known.
  const CpuSet& cpus_near(const Gpu& gpu) const;

 private:
  const NumaNode* node(int id) const;
};

// A GPU's /proc/driver/nvidia/gpus/ADDRESS/information.
struct DriverRecord {
  int minor = -1;
  std::string uuid;
  bool excluded = false;  // by the administrator: CUDA does not see it
};
Result<DriverRecord> parse_driver_record(std::string_view text);

// "10 12 32", as in /sys/devices/system/node/nodeN/distance.
Result<std::vector<int>> parse_distances(std::string_view text);

}  // namespace torchbridge
