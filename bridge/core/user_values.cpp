#include <torchbridge/core/user_values.h>

#include <algorithm>
#include <iterator>

namespace torchbridge {
namespace {

// They differ from task to task, or, of the last one, may differ from node to node.
constexpr std::string_view kRanks[] = {"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "LOCAL_WORLD_SIZE"};
constexpr std::string_view kSizes[] = {"WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"};

template <std::size_t n>
bool contains(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_single(const std::vector<Variable>& computed) {
  return std::find(computed.begin(), computed.end(), Variable("WORLD_SIZE", "1")) != computed.end();
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
      continue;
    }
    const std::string shown = name + "='" + printable(*exported) + "' is exported, ";
    if (contains(kRanks, name) && !is_single(computed)) {
      return Error{shown + "so that every task would have it: unset it, or give override=yes"};
    }
    if ((contains(kRanks, name) || contains(kSizes, name)) && *exported != value) {
      return Error{shown + "but here it is '" + value + "': unset it, or give override=yes"};
    }
  }
  return chosen;
}

}  // namespace torchbridge
