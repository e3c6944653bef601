#include "settings.h"

namespace torchbridge {
namespace {

// `list` on top of `base`.
Result<Options> merged(const char* place, std::string_view list, const Options& base) {
  auto options = parse_options(list, base);
  if (!options) return Error{std::string(place) + ": " + options.error().message};
  return options;
}

constexpr char kCommandLine[] = "--torch-env";

}  // namespace

Status Settings::check_command_line(std::string_view list) {
  const auto options = merged(kCommandLine, list, {});
  if (!options) return options.error();
  return Ok{};
}

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
      {kCommandLine, command_line_ ? std::string_view(*command_line_) : std::string_view()},
  };
  for (const auto& [place, list] : sources) {
    auto with_list = merged(place, list, options);
    if (!with_list) return with_list.error();
    options = std::move(*with_list);
  }
  return std::optional<Options>(std::move(options));
}

}  // namespace torchbridge
