#include <torchbridge/core/user_values.h>

#include <algorithm>

namespace torchbridge {
namespace {

constexpr std::string_view kPositions[] = {"RANK",       "WORLD_SIZE",       "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                           "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",  "ROLE_WORLD_SIZE"};

bool is_position(std::string_view name) {
  return std::find(std::begin(kPositions), std::end(kPositions), name) != std::end(kPositions);
}

}  // namespace

Result<std::vector<Variable>> variables_to_set(const std::vector<Variable>& computed, const EnvMap& user,
                                               bool override_user) {
  if (override_user) return computed;
  std::vector<Variable> chosen;
  for (const auto& [name, value] : computed) {
    const auto exported = user.get(name);
    if (!exported) {
      chosen.emplace_back(name, value);
    } else if (is_position(name) && *exported != value) {
      return Error{name + "='" + printable(*exported) + "' is exported, but for this task it is '" + value +
                   "': unset it, or give override=yes"};
    }
  }
  return chosen;
}

}  // namespace torchbridge
