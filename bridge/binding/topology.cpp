#include "bridge/binding/topology.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

constexpr int kLocal = 10;   // in the kernel's table of distances
constexpr int kRemote = 20;  // its value where the firmware has no table
constexpr int kMaxDistance = 255;
constexpr int kMaxMinor = (1 << 20) - 1;

// Exactly `text`, in hexadecimal.
std::optional<unsigned> parse_hex(std::string_view text, unsigned high) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size() || number > high)
    return std::nullopt;
  return number;
}

std::string hex(unsigned number, std::size_t width) {
  std::array<char, 8> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  std::string text(digits.data(), end);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

Status read_driver_line(std::string_view name, std::string_view value, DriverRecord& record) {
  if (name == "Device Minor") {
    const auto minor = parse_integer(value, 0, kMaxMinor);
    if (!minor) return Error{formatted("Device Minor '{}': expected a number", printable(value))};
    record.minor = static_cast<int>(*minor);
  }
  // Before its first use a GPU is called GPU-????????-????-...
  if (name == "GPU UUID" && value.find('?') == std::string_view::npos) record.uuid = value;
  if (name == "GPU Excluded" || name == "Blacklisted") record.excluded = value == "Yes";
  return Ok{};
}

}  // namespace

std::string PciAddress::text() const {
  return hex(domain, 4) + ":" + hex(bus, 2) + ":" + hex(device, 2) + "." + hex(function, 1);
}

Result<PciAddress> parse_pci_address(std::string_view text) {
  std::string_view rest = text;
  const auto domain = parse_hex(take_until(rest, ':'), UINT32_MAX);
  const auto bus = parse_hex(take_until(rest, ':'), 0xff);
  const auto device = parse_hex(take_until(rest, '.'), 0x1f);
  const auto function = parse_hex(rest, 7);
  if (domain && bus && device && function) return PciAddress{*domain, *bus, *device, *function};
  return Error{formatted("'{}': expected a PCI address such as 0000:07:00.0", printable(text))};
}

std::vector<const Gpu*> Topology::usable_gpus() const {
  std::vector<const Gpu*> usable;
  for (const Gpu& gpu : gpus) {
    if (gpu.usable) usable.push_back(&gpu);
  }
  return usable;
}

const Gpu* Topology::gpu_named(std::string_view name) const {
  const auto usable = usable_gpus();
  if (const auto index = parse_integer(name, 0, INT32_MAX)) {
    return static_cast<std::size_t>(*index) < usable.size()
               ? usable[static_cast<std::size_t>(*index)]
               : nullptr;
  }
  if (name.starts_with("MIG-GPU-")) {
    name.remove_prefix(4);
    name = name.substr(0, name.find('/'));
  }
  if (!name.starts_with("GPU-")) return nullptr;
  const Gpu* found = nullptr;
  for (const Gpu* gpu : usable) {
    if (!gpu->uuid.starts_with(name)) continue;
    if (found != nullptr) return nullptr;
    found = gpu;
  }
  return found;
}

const NumaNode* Topology::node(int id) const {
  const auto found = std::ranges::find(nodes, id, &NumaNode::id);
  return found == nodes.end() ? nullptr : &*found;
}

int Topology::distance(const CpuSet& cpus, const Gpu& gpu) const {
  const NumaNode* target = node(gpu.numa_node);
  if (target == nullptr) {
    const bool local = gpu.local_cpus.empty() || !intersection(cpus, gpu.local_cpus).empty();
    return local ? kLocal : kRemote;
  }
  const auto index = static_cast<std::size_t>(target - nodes.data());
  int nearest = kMaxDistance;
  for (const NumaNode& from : nodes) {
    if (intersection(cpus, from.cpus).empty()) continue;
    const int known = index < from.distances.size() ? from.distances[index]
                      : &from == target             ? kLocal
                                                    : kRemote;
    nearest = std::min(nearest, known);
  }
  return nearest;
}

const CpuSet& Topology::cpus_near(const Gpu& gpu) const {
  const NumaNode* home = node(gpu.numa_node);
  return home != nullptr && !home->cpus.empty() ? home->cpus : gpu.local_cpus;
}

Result<DriverRecord> parse_driver_record(std::string_view text) {
  DriverRecord record;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const auto name = trimmed(take_until(line, ':'));
    if (const auto read = read_driver_line(name, trimmed(line), record); !read) return read.error();
  }
  return record;
}

Result<std::vector<int>> parse_distances(std::string_view text) {
  std::vector<int> distances;
  for (std::string_view rest = trimmed(text); !rest.empty(); rest = trimmed(rest)) {
    const auto number = take_until(rest, ' ');
    const auto distance = parse_integer(number, 0, kMaxDistance);
    if (!distance)
      return Error{formatted("'{}': expected distances such as 10 20", printable(text))};
    distances.push_back(static_cast<int>(*distance));
  }
  return distances;
}

}  // namespace torchbridge
