#include "bridge/host/read_machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/host/text_file.h"

namespace torchbridge {
namespace {

constexpr std::string_view kNvidia = "0x10de";
constexpr int kMaxNode = 65535;

Result<int> parse_node_id(std::string_view text) {
  const auto id = parse_integer(text, -1, kMaxNode);
  if (!id) return Error{formatted("'{}': expected a NUMA node or -1", printable(text))};
  return static_cast<int>(*id);
}

// Display and 3D controllers. Sound, USB and NVSwitch functions of the same vendor have other
// classes.
bool is_gpu_class(std::string_view text) {
  return text.starts_with("0x0300") || text.starts_with("0x0302");
}

Result<bool> is_nvidia_gpu(const std::string& device) {
  const auto vendor = read_text(device + "/vendor");
  if (!vendor) return vendor.error();
  if (*vendor != kNvidia) return false;
  const auto kind = read_text(device + "/class");
  if (!kind) return kind.error();
  return *kind && is_gpu_class(**kind);
}

Result<Gpu> read_gpu(const std::string& device, PciAddress address) {
  Gpu gpu;
  gpu.address = address;
  const auto node = read_value(device + "/numa_node", parse_node_id, -1);
  if (!node) return node.error();
  gpu.numa_node = *node;
  auto cpus = read_value(device + "/local_cpulist", parse_cpu_list, CpuSet());
  if (!cpus) return cpus.error();
  gpu.local_cpus = std::move(*cpus);
  return gpu;
}

Result<std::vector<Gpu>> read_pci(const std::string& root) {
  const std::string folder = root + "/sys/bus/pci/devices";
  const auto names = names_in(folder);
  if (!names) return names.error();
  std::vector<Gpu> gpus;
  for (const auto& name : *names) {
    const std::string device = folder + "/" + name;
    const auto wanted = is_nvidia_gpu(device);
    if (!wanted) return wanted.error();
    if (!*wanted) continue;
    const auto address = parse_pci_address(name);
    if (!address) return in_file(folder, address.error());
    auto gpu = read_gpu(device, *address);
    if (!gpu) return gpu.error();
    gpus.push_back(std::move(*gpu));
  }
  std::ranges::sort(gpus, [](const Gpu& a, const Gpu& b) { return a.address < b.address; });
  return gpus;
}

// access() asks a device cgroup too, and opens nothing: opening the file would wake the GPU.
bool may_open(const std::string& device) {
  return access(device.c_str(), R_OK | W_OK) == 0 || errno == ENOENT;
}

// A container may hold the device files of its own GPUs only; on a host they may all be made at the
// first use.
bool any_device_file(const std::string& root, const std::vector<Gpu>& gpus) {
  return std::ranges::any_of(gpus, [&](const Gpu& gpu) {
    return gpu.minor >= 0 &&
           access((root + "/dev/nvidia" + std::to_string(gpu.minor)).c_str(), F_OK) == 0;
  });
}

// Adds what the driver lists. Its list lacks GPUs that another driver holds, such as vfio-pci's.
Status read_driver(const std::string& root, std::vector<Gpu>& gpus) {
  const std::string folder = root + "/proc/driver/nvidia/gpus";
  const auto names = names_in(folder);
  if (!names) return names.error();
  if (names->empty()) return Ok{};
  for (Gpu& gpu : gpus) gpu.usable = false;
  for (const auto& name : *names) {
    const auto address = parse_pci_address(name);
    if (!address) return in_file(folder, address.error());
    const auto gpu = std::ranges::find(gpus, *address, &Gpu::address);
    if (gpu == gpus.end()) continue;
    auto record =
        read_value(folder + "/" + name + "/information", parse_driver_record, DriverRecord());
    if (!record) return record.error();
    gpu->minor = record->minor;
    gpu->uuid = std::move(record->uuid);
    gpu->usable = !record->excluded;
  }
  const bool files_are_made = any_device_file(root, gpus);
  for (Gpu& gpu : gpus) {
    if (gpu.minor < 0) continue;
    const std::string device = root + "/dev/nvidia" + std::to_string(gpu.minor);
    if (!may_open(device) || (files_are_made && access(device.c_str(), F_OK) != 0))
      gpu.usable = false;
  }
  return Ok{};
}

Result<NumaNode> read_node(const std::string& folder, int id) {
  NumaNode node;
  node.id = id;
  auto cpus = read_value(folder + "/cpulist", parse_cpu_list, CpuSet());
  if (!cpus) return cpus.error();
  node.cpus = std::move(*cpus);
  auto distances = read_value(folder + "/distance", parse_distances, std::vector<int>());
  if (!distances) return distances.error();
  node.distances = std::move(*distances);
  return node;
}

Result<std::vector<NumaNode>> read_nodes(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node";
  const auto names = names_in(folder);
  if (!names) return names.error();
  std::vector<NumaNode> nodes;
  for (const auto& name : *names) {
    const auto id = numbered(name, "node");
    if (!id) continue;
    auto node = read_node(folder + "/" + name, *id);
    if (!node) return node.error();
    nodes.push_back(std::move(*node));
  }
  std::ranges::sort(nodes, [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  for (const auto& node : nodes) {
    if (node.distances.empty() || node.distances.size() == nodes.size()) continue;
    return Error{formatted("{}/node{}/distance: {} distances for {} nodes", folder, node.id,
                           node.distances.size(), nodes.size())};
  }
  return nodes;
}

Result<std::vector<CpuSet>> read_cores(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/cpu";
  const auto names = names_in(folder);
  if (!names) return names.error();
  std::vector<CpuSet> cores;
  for (const auto& name : *names) {
    const auto cpu = numbered(name, "cpu");
    if (!cpu) continue;
    auto threads = read_value(folder + "/" + name + "/topology/thread_siblings_list",
                              parse_cpu_list, CpuSet());
    if (!threads) return threads.error();
    if (!threads->empty() && threads->front() == *cpu) cores.push_back(std::move(*threads));
  }
  std::ranges::sort(cores);
  return cores;
}

}  // namespace

Result<Topology> read_topology(const std::string& root) {
  auto gpus = read_pci(root);
  if (!gpus) return gpus.error();
  if (const auto driver = read_driver(root, *gpus); !driver) return driver.error();
  auto nodes = read_nodes(root);
  if (!nodes) return nodes.error();
  auto cores = read_cores(root);
  if (!cores) return cores.error();
  return Topology{std::move(*gpus), std::move(*nodes), std::move(*cores), {}, {}};
}

Result<CpuSet> allowed_cpus() {
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
      CPU_ALLOC(kMaxCpu + 1), [](cpu_set_t* set) { CPU_FREE(set); });
  const std::size_t size = CPU_ALLOC_SIZE(kMaxCpu + 1);
  if (!mask || sched_getaffinity(0, size, mask.get()) != 0) {
    return Error{std::string("cannot read the CPUs of this process: ") + std::strerror(errno)};
  }
  CpuSet cpus;
  for (int cpu = 0; cpu <= kMaxCpu; ++cpu) {
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, mask.get())) cpus.push_back(cpu);
  }
  return cpus;
}

Result<Machine> read_machine(const std::string& root) {
  auto topology = read_topology(root);
  if (!topology) return topology.error();
  auto cpus = allowed_cpus();
  if (!cpus) return cpus.error();
  return Machine{std::move(*topology), std::move(*cpus), {}};
}

}  // namespace torchbridge
