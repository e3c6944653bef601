#include "bridge/base/env_map.h"

#include <charconv>
#include <cstring>

#include "bridge/base/hex_text.h"
#include "bridge/base/message_text.h"

namespace torchbridge {

EnvMap EnvMap::from(const char* const* environment) {
  EnvMap map;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const char* equals = std::strchr(*environment, '=');
    if (equals == nullptr || equals == *environment) continue;
    map.variables_.emplace(std::string(*environment, equals), std::string(equals + 1));
  }
  return map;
}

std::optional<std::string_view> EnvMap::get(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

void EnvMap::set(std::string_view name, std::string_view value) {
  variables_.insert_or_assign(std::string(name), std::string(value));
}

Result<std::optional<std::int64_t>> EnvMap::integer(std::string_view name, std::int64_t low,
                                                    std::int64_t high) const {
  const auto text = get(name);
  if (!text) return std::optional<std::int64_t>();
  if (const auto number = parse_integer(*text, low, high)) return number;
  return Error{
      formatted("{}='{}': expected an integer from {} to {}", name, printable(*text), low, high)};
}

Result<std::int64_t> EnvMap::required_integer(std::string_view name, std::int64_t low,
                                              std::int64_t high) const {
  auto number = integer(name, low, high);
  if (!number) return number.error();
  if (!*number) return Error{formatted("{} is not set", name)};
  return **number;
}

Result<std::string_view> EnvMap::required(std::string_view name) const {
  const auto text = get(name);
  if (!text || text->empty())
    return Error{std::string(name) + (text ? " is empty" : " is not set")};
  return *text;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kLimit = 80;
  std::string shown;
  for (const char c : text.substr(0, kLimit)) {
    if (c >= 0x20 && c < 0x7f)
      shown += c;
    else
      shown += "\\x" + hex_of({&c, 1});
  }
  if (text.size() > kLimit) shown += "...";
  return shown;
}

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t low,
                                          std::int64_t high) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high)
    return std::nullopt;
  return number;
}

}  // namespace torchbridge
