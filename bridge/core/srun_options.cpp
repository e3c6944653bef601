#include "bridge/core/srun_options.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

namespace torchbridge {
namespace {

using Words = std::vector<std::string>;

// The words before the program's; nothing where these are not the last ones. Empty for several
// components.
std::optional<Words> options_of(const Words& command_line, Words program) {
  const auto ends_with = [&](auto first) {
    return std::equal(program.rbegin(), std::make_reverse_iterator(first), command_line.rbegin());
  };
  const bool has_components = std::ranges::find(command_line, ":") != command_line.end();
  if (has_components) return Words();
  if (program.empty() || command_line.size() <= program.size()) return std::nullopt;
  if (!ends_with(program.begin() + 1)) {  // srun may replace the program's name by its path
    // With --multi-prog srun inserts the content of the file behind its name.
    program.erase(program.begin() + 1);
    if (!ends_with(program.begin())) return std::nullopt;
  }
  return Words(command_line.begin() + 1,
               command_line.end() - static_cast<std::ptrdiff_t>(program.size()));
}

bool turns_off(std::string_view value) { return value == "off" || value == "no"; }

}  // namespace

bool has_decided_on_failures(const Words& command_line, const Words& program,
                             const EnvMap& environment) {
  bool is_decided = environment.has("SLURM_KILL_BAD_EXIT");
  bool no_kill = environment.has("SLURM_NO_KILL") && !turns_off(*environment.get("SLURM_NO_KILL"));
  const auto options = options_of(command_line, program);
  if (!options) return true;
  for (const std::string_view word : *options) {
    // getopt_long accepts an option's name as soon as no other option begins like it.
    const bool has_name = word.starts_with("--no-k");
    if (word.starts_with("-K") || word.starts_with("--kill-on-b")) is_decided = true;
    if (has_name || word.starts_with("-k"))
      no_kill = !turns_off(has_name ? word.substr(word.find('=') + 1) : word.substr(2));
  }
  return is_decided || no_kill;
}

}  // namespace torchbridge
