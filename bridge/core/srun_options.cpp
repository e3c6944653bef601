#include "bridge/core/srun_options.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace torchbridge {
namespace {

using Words = std::vector<std::string>;

// Letters of options that take a value, which is the rest of the word. One that is not known is
// taken for an option without a value.
constexpr std::string_view kTakeValue = "ABCDFGIJLMNSTWbcdeimnopqrtwx";

// The word from its -k or -K on, as "koff" of "-ukoff"; empty where it has none, as in "-Jkate".
std::string_view kill_letter(std::string_view word) {
  if (!word.starts_with('-') || word.starts_with("--")) return {};
  const auto kill = std::min(word.find_first_of("kK"), word.size());
  return word.find_first_of(kTakeValue) < kill ? std::string_view() : word.substr(kill);
}

bool has_components(const Words& command_line) {
  return std::ranges::find(command_line, ":") != command_line.end();
}

// The words before the program's; nothing where these are not the last ones. With several
// components all words.
std::optional<Words> options_of(const Words& command_line, Words program) {
  const auto ends_with = [&](auto first) {
    return std::equal(program.rbegin(), std::make_reverse_iterator(first), command_line.rbegin());
  };
  if (has_components(command_line)) return command_line;
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
    const std::string_view letter = kill_letter(word);
    if (letter.starts_with('K') || word.starts_with("--kill-on-b")) is_decided = true;
    if (!has_name && !letter.starts_with('k')) continue;
    const bool is_on = !turns_off(has_name ? word.substr(word.find('=') + 1) : letter.substr(1));
    // Each component has options of its own.
    no_kill = is_on || (no_kill && has_components(command_line));
  }
  return is_decided || no_kill;
}

}  // namespace torchbridge
