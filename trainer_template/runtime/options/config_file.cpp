#include "trainer_template/runtime/options/config_file.h"

#include <utility>

#include <CLI/StringTools.hpp>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"
#include "bridge/program/program.h"

namespace torchbridge::train {

std::string config_file(OptionTable& options, const std::string& program) {
  constexpr std::size_t kWidth = 98;
  std::string text = formatted("# Options for --config, by {} --print-config\n", program), group;
  for (const DeclaredOption& each : options.all()) {
    if (std::exchange(group, each.group) != each.group) text += "\n## " + each.group + "\n";
    if (const std::string plain = text_of(each.value); !is_utf8(plain))
      throw EarlyExit(ExitCode::kBadOptions,
                      formatted("--print-config: {} '{}' is not UTF-8, as a file for --config is",
                                each.name, printable(plain)));
    const auto value = toml_of(each.value);
    const std::string choices = each.choices().empty() ? "" : " (" + each.kind() + ")";
    const bool is_set = value && (each.is_given || !each.rule.default_yields);
    const std::string not_set =
        is_set ? ""
               : ". Not set" + (each.rule.if_not_set.empty() ? "" : ": " + each.rule.if_not_set);
    const std::string comment = wrapped(each.help + choices + not_set, kWidth);
    text += "\n# " + CLI::detail::find_and_replace(comment, "\n", "\n# ") + "\n";
    text += (is_set ? "" : "# ") + each.key() + " =" + (value ? " " + *value : "") + "\n";
  }
  return text;
}

}  // namespace torchbridge::train
