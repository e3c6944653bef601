#include "bridge/binding/cpu_set.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "bridge/base/env_map.h"
#include "bridge/base/hostlist.h"
#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

}  // namespace

Result<CpuSet> parse_cpu_list(std::string_view text) {
  if (text.empty()) return CpuSet();
  auto cpus = parse_number_list(text, kMaxCpu);
  if (!cpus)
    return Error{formatted("'{}': expected CPU numbers such as 0-3,8, at most {}", printable(text),
                           kMaxCpu)};
  std::sort(cpus->begin(), cpus->end());
  cpus->erase(std::unique(cpus->begin(), cpus->end()), cpus->end());
  return std::move(*cpus);
}

Result<CpuSet> parse_cpu_mask(std::string_view text) {
  const auto wrong = [&] {
    return Error{formatted("'{}': expected a CPU mask such as 0xf0", printable(text))};
  };
  const auto digits = text.substr(text.starts_with("0x") ? 2 : 0);
  if (digits.empty() || digits.size() > (kMaxCpu + 1) / 4) return wrong();
  CpuSet cpus;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const auto digit = hex_digit(digits[digits.size() - 1 - i]);
    if (!digit) return wrong();
    for (int bit = 0; bit < 4; ++bit) {
      if ((*digit >> bit & 1) != 0) cpus.push_back(static_cast<int>(i) * 4 + bit);
    }
  }
  return cpus;
}

std::string cpu_list_text(const CpuSet& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[first]);
    if (last > first) text += "-" + std::to_string(cpus[last]);
    first = last + 1;
  }
  return text;
}

CpuSet intersection(const CpuSet& left, const CpuSet& right) {
  CpuSet common;
  std::ranges::set_intersection(left, right, std::back_inserter(common));
  return common;
}

CpuSet part_of(const CpuSet& cpus, const std::vector<CpuSet>& cores, std::size_t index,
               std::size_t count) {
  std::vector<CpuSet> usable;
  CpuSet alone = cpus;
  for (const CpuSet& core : cores) {
    CpuSet threads = intersection(core, cpus);
    if (threads.empty()) continue;
    std::erase_if(alone,
                  [&](int cpu) { return std::binary_search(threads.begin(), threads.end(), cpu); });
    usable.push_back(std::move(threads));
  }
  for (const int cpu : alone) usable.push_back({cpu});
  if (usable.size() < count) return cpus;
  std::sort(usable.begin(), usable.end());
  CpuSet part;
  for (std::size_t core = index * usable.size() / count; core < (index + 1) * usable.size() / count;
       ++core) {
    part.insert(part.end(), usable[core].begin(), usable[core].end());
  }
  std::sort(part.begin(), part.end());
  return part;
}

}  // namespace torchbridge
