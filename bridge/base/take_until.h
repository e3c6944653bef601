// Reading a text part by part.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace torchbridge {

// The first part of `text` before `separator`, which is taken off with it; all of it where there is
// none.
inline std::string_view take_until(std::string_view& text, char separator) {
  const auto end = std::min(text.find(separator), text.size());
  const auto part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// The parts between separators, at least one.
inline std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\n") {
  const auto begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

}  // namespace torchbridge
