#include "bridge/host/read_cpu_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/host/text_file.h"

namespace torchbridge {
namespace {

constexpr int kUnknown = -1;

template <int Max>
Result<int> parse_group_number(std::string_view text) {
  const auto number = parse_integer(text, kUnknown, Max);
  if (!number) return Error{formatted("'{}': expected a number", printable(text))};
  return static_cast<int>(*number);
}

Result<std::string> parse_word(std::string_view text) { return std::string(text); }

Result<std::vector<int>> cpus_in(const std::string& folder) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  std::vector<int> cpus;
  for (const auto& name : *names) {
    if (const auto cpu = numbered(name, "cpu")) cpus.push_back(*cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

Result<std::vector<CpuSet>> read_sockets(const std::string& folder, const std::vector<int>& cpus) {
  std::map<int, CpuSet> by_number;
  for (const int cpu : cpus) {
    const auto number =
        read_value(folder + "/cpu" + std::to_string(cpu) + "/topology/physical_package_id",
                   parse_group_number<INT32_MAX>, kUnknown);
    if (!number) return number.error();
    if (*number != kUnknown) by_number[*number].push_back(cpu);
  }
  std::vector<CpuSet> sockets;
  for (auto& [number, group] : by_number) sockets.push_back(std::move(group));
  return sockets;
}

// The CPUs that share this CPU's cache of the highest level; none where there is no cache.
Result<CpuSet> read_last_cache(const std::string& folder) {
  const auto names = names_in(folder);
  if (!names) return names.error();
  int highest = kUnknown;
  CpuSet sharing;
  for (const auto& name : *names) {
    if (!numbered(name, "index")) continue;
    const auto type = read_value(folder + "/" + name + "/type", parse_word, std::string());
    if (!type) return type.error();
    if (*type != "Unified" && *type != "Data") continue;
    const auto level =
        read_value(folder + "/" + name + "/level", parse_group_number<255>, kUnknown);
    if (!level) return level.error();
    if (*level <= highest) continue;
    auto cpus = read_value(folder + "/" + name + "/shared_cpu_list", parse_cpu_list, CpuSet());
    if (!cpus) return cpus.error();
    highest = *level;
    sharing = std::move(*cpus);
  }
  return sharing;
}

Result<std::vector<CpuSet>> read_caches(const std::string& folder, const std::vector<int>& cpus) {
  std::vector<CpuSet> caches;
  std::set<int> known;
  for (const int cpu : cpus) {
    if (known.contains(cpu)) continue;
    auto cache = read_last_cache(folder + "/cpu" + std::to_string(cpu) + "/cache");
    if (!cache) return cache.error();
    if (cache->empty()) continue;
    known.insert(cache->begin(), cache->end());
    caches.push_back(std::move(*cache));
  }
  return caches;
}

}  // namespace

Status read_cpu_groups(const std::string& root, Topology& topology) {
  const std::string folder = root + "/sys/devices/system/cpu";
  const auto cpus = cpus_in(folder);
  if (!cpus) return cpus.error();
  auto sockets = read_sockets(folder, *cpus);
  if (!sockets) return sockets.error();
  auto caches = read_caches(folder, *cpus);
  if (!caches) return caches.error();
  topology.sockets = std::move(*sockets);
  topology.caches = std::move(*caches);
  return Ok{};
}

}  // namespace torchbridge
