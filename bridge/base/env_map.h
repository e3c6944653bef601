// The environment of a process as a value: the input of the launchers' readers, recorded by tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

// Variable names to values. A variable that is set to the empty string is there, with an empty
// value.
class EnvMap {
 public:
  EnvMap() = default;
  EnvMap(std::initializer_list<std::pair<const std::string, std::string>> variables)
      : variables_(variables) {}

  // Copies a null-terminated array of "NAME=value" strings, as `environ`. Strings without '=' are
  // left out.
  static EnvMap from(const char* const* environment);

  // The value lives as long as the map is not changed.
  std::optional<std::string_view> get(std::string_view name) const;
  bool has(std::string_view name) const { return get(name).has_value(); }
  void set(std::string_view name, std::string_view value);

  // A decimal integer in [low, high]; nothing when the variable is unset; an error that names
  // variable, value and range when it is anything else (blanks, signs other than '-', trailing text
  // and overflow included).
  Result<std::optional<std::int64_t>> integer(std::string_view name, std::int64_t low,
                                              std::int64_t high) const;

  // The same, and an unset variable is an error.
  Result<std::int64_t> required_integer(std::string_view name, std::int64_t low,
                                        std::int64_t high) const;
  Result<std::string_view> required(std::string_view name) const;

  auto begin() const { return variables_.begin(); }
  auto end() const { return variables_.end(); }

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

// The value as it may be shown in a message: control characters and bytes outside ASCII escaped,
// cut after 80 characters.
std::string printable(std::string_view text);

// Whole `text` as a decimal integer in [low, high], or nothing.
std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t low,
                                          std::int64_t high);

}  // namespace torchbridge
