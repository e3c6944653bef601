// What Python's init methods give resolve_launch.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "bridge/launch/launch.h"

namespace torchbridge::python {

// Throws where the options are wrong.
inline LaunchSettings settings_of(double seconds, const std::string& options) {
  LaunchSettings settings;
  auto parsed = parse_options(options);
  if (!parsed) throw std::runtime_error(parsed.error().message);
  settings.options = std::move(*parsed);
  settings.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  return settings;
}

}  // namespace torchbridge::python
