#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>

#include <torchbridge/option_table.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/backends/device_backends.h"

namespace torchbridge::train {
namespace {

bool parse(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

}  // namespace

std::string check_backend(const std::string& name) {
  if (name == "auto") return {};
  const auto backends = parse_backends(name, "");
  return backends ? "" : backends.error().message;
}

std::string not_negative(const std::string& text) {
  double value = -1;
  const bool number = parse(text, value);
  return number && value >= 0 && value < 1e300
             ? ""
             : formatted("'{}': expected a number of at least 0, below 1e300", text);
}

std::function<std::string(const std::string&)> number_between(double least, double most) {
  return [least, most](const std::string& text) {
    double value = 0;
    const bool number = parse(text, value);
    if (number && value >= least && value <= most) return std::string();
    std::ostringstream expected;
    expected << "'" << text << "': expected a number from " << least << " to " << most;
    return expected.str();
  };
}

std::function<std::string(const std::string&)> at_least(std::int64_t least) {
  return [least](const std::string& text) {
    if (parse_integer(text, least, std::numeric_limits<std::int64_t>::max())) return std::string();
    return formatted("'{}': expected a whole number of at least {}", printable(text), least);
  };
}

std::function<std::string(const std::string&)> whole_between(std::int64_t least,
                                                             std::int64_t most) {
  return [least, most](const std::string& text) {
    if (parse_integer(text, least, most)) return std::string();
    return formatted("'{}': expected a whole number from {} to {}", printable(text), least, most);
  };
}

std::string existing_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored)
             ? ""
             : formatted("'{}' is not a file", printable(path));
}

std::string not_empty(const std::string& text) { return text.empty() ? "the value is empty" : ""; }

}  // namespace torchbridge::train
