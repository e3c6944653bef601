// Sets of CPUs, as the kernel and Slurm write them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge {

// CPU numbers, ascending, each once.
using CpuSet = std::vector<int>;

inline constexpr int kMaxCpu = 65535;

// "0-3,8", as in sysfs; an empty text is the empty set.
Result<CpuSet> parse_cpu_list(std::string_view text);

// "0x5" or "5": bit n, from the right, is CPU n. As in SLURM_CPU_BIND_LIST.
Result<CpuSet> parse_cpu_mask(std::string_view text);

// "0-3,8": the shortest list.
std::string cpu_list_text(const CpuSet& cpus);

CpuSet intersection(const CpuSet& left, const CpuSet& right);

// Part `index` of `count` about equal parts of the CPUs, none of which divides a core; all of the
// CPUs where there are fewer cores than parts. `cores` are the hardware threads that share one
// each; a CPU in none of them is a core of its own. REQUIRES: index < count.
CpuSet part_of(const CpuSet& cpus, const std::vector<CpuSet>& cores, std::size_t index,
               std::size_t count);

}  // namespace torchbridge
