// What the site, the user's environment and the command line ask of the plugin.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>

namespace torchbridge {

// One process loads the plugin once, so there is one of these. Whoever comes later wins: plugstack.conf, then TORCHBRIDGE_OPTIONS,
// then the command line.
class Settings {
 public:
  void set_site_defaults(std::string_view list) { site_ = list; }
  // --torch-env was given; the list is empty where it stood without one.
  void set_command_line(std::string_view list) { command_line_ = list; }

  // The error is that of resolve, of this list alone.
  static Status check_command_line(std::string_view list);

  // Nothing where neither the command line nor TORCHBRIDGE_OPTIONS asks for the plugin. `variable` is the value of TORCHBRIDGE_OPTIONS, which
  // asks for it unless it is empty. The error names the place that the wrong list came from.
  Result<std::optional<Options>> resolve(std::optional<std::string_view> variable) const;

 private:
  std::string site_;
  std::optional<std::string> command_line_;
};

}  // namespace torchbridge
