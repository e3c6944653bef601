#include "settings.h"

namespace torchbridge {

Result<std::optional<Options>> Settings::resolve(std::optional<std::string_view> variable) const {
  const bool by_variable = variable && !variable->empty();
  if (!command_line_ && !by_variable) return std::optional<Options>();

  Options options;
  const struct {
    const char* place;
    std::string_view list;
  } sources[] = {
      {"plugstack.conf", site_},
      {kOptionsVariable, by_variable ? *variable : std::string_view()},
      {"--torch-env", command_line_ ? std::string_view(*command_line_) : std::string_view()},
  };
  for (const auto& [place, list] : sources) {
    auto merged = parse_options(list, options);
    if (!merged) return Error{std::string(place) + ": " + merged.error().message};
    options = std::move(*merged);
  }
  return std::optional<Options>(std::move(options));
}

}  // namespace torchbridge
