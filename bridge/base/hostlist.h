// Slurm's compact lists: host names ("n[1-3,7]"), task counts ("5,1(x3)") and numbers ("0,3-5").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge {

// More entries than any cluster has; longer lists are an error instead of filling memory.
inline constexpr std::size_t kMaxListEntries = 1'000'000;

// The names in the order of the list, repeated where the list repeats them; leading zeros kept.
// Several bracket groups in one name multiply out, the last one fastest. Errors contain the text
// and what is wrong with it. (Format: Slurm's hostlist(3).)
Result<std::vector<std::string>> parse_hostlist(std::string_view text);

// Only the first name of the list.
Result<std::string> first_host(std::string_view text);

// Tasks on each node: "2(x3),1" is 2,2,2,1. Every count is at least 1.
Result<std::vector<int>> parse_task_counts(std::string_view text);

// Non-negative numbers and ranges: "0,3-5" is 0,3,4,5. The upper bound of any number is `high`.
Result<std::vector<int>> parse_number_list(std::string_view text, int high);

}  // namespace torchbridge
