#include "bridge/core/user_values.h"

#include <algorithm>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

// A program with another value than the computed one would wait for ranks that do not exist, or run
// with the rank of another.
constexpr std::string_view kRanksAndSizes[] = {
    "RANK",       "LOCAL_RANK",       "GROUP_RANK",       "ROLE_RANK",
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"};

}  // namespace

bool is_rank_or_size(std::string_view name) { return std::ranges::count(kRanksAndSizes, name) > 0; }

Result<std::vector<Variable>> variables_to_set(const std::vector<Variable>& computed,
                                               const EnvMap& user, bool override_user,
                                               bool is_for_agent) {
  if (override_user) return computed;
  std::vector<Variable> chosen;
  for (const auto& [name, value] : computed) {
    const auto exported = user.get(name);
    if (!exported || (is_for_agent && is_rank_or_size(name))) {
      chosen.emplace_back(name, value);
      continue;
    }
    if (is_rank_or_size(name) && *exported != value) {
      return Error{formatted(
          "{}='{}' is exported, but this task's value is '{}': unset it, or give override=yes",
          name, printable(*exported), value)};
    }
  }
  return chosen;
}

}  // namespace torchbridge
