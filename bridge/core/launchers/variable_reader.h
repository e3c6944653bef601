// Reads a launcher's variables one after the other and keeps the error of the first that is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

class VariableReader {
 public:
  explicit VariableReader(const EnvMap& environment) : environment_(environment) {}

  // The variable must be there and within [low, high]. After an error the value is `low`.
  int integer(std::string_view name, std::int64_t low, std::int64_t high) {
    const auto number = environment_.required_integer(name, low, high);
    if (!number) return fail(number.error()), static_cast<int>(low);
    return static_cast<int>(*number);
  }

  // The same, but an unset variable gives `missing`.
  int integer_or(std::string_view name, std::int64_t low, std::int64_t high, int missing) {
    return environment_.has(name) ? integer(name, low, high) : missing;
  }

  // An unset or empty variable gives an empty list.
  template <class List>
  List list(std::string_view name, Result<List> (*parse)(std::string_view)) {
    const auto text = environment_.get(name);
    if (!text || text->empty()) return {};
    auto parsed = parse(*text);
    if (!parsed) return fail({std::string(name) + ": " + parsed.error().message}), List{};
    return std::move(*parsed);
  }

  std::string text(std::string_view name) const {
    return std::string(environment_.get(name).value_or(""));
  }

  // Null where no variable was wrong so far.
  const Error* error() const { return error_.message.empty() ? nullptr : &error_; }

 private:
  void fail(const Error& error) {
    if (error_.message.empty()) error_ = error;
  }

  const EnvMap& environment_;
  Error error_;
};

}  // namespace torchbridge
