// Several texts as one, to be sent: each with its length before it, "5 hello3 abc".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/env_map.h"

namespace torchbridge {

inline std::string join_values(const std::vector<std::string>& values) {
  std::string text;
  for (const auto& value : values) text += std::to_string(value.size()) + " " + value;
  return text;
}

// Empty where `text` was not made by join_values.
inline std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values;
  while (!text.empty()) {
    const auto blank = text.find(' ');
    const auto size =
        blank == text.npos ? std::nullopt : parse_integer(text.substr(0, blank), 0, INT32_MAX);
    if (!size || static_cast<std::size_t>(*size) > text.size() - blank - 1) return {};
    values.emplace_back(text.substr(blank + 1, *size));
    text.remove_prefix(blank + 1 + *size);
  }
  return values;
}

}  // namespace torchbridge
