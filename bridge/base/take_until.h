// Reading a text part by part.
#pragma once

#include <algorithm>
#include <string_view>

namespace torchbridge {

// The first part of `text` before `separator`, which is taken off with it; all of it where there is none.
inline std::string_view take_until(std::string_view& text, char separator) {
  const auto end = std::min(text.find(separator), text.size());
  const auto part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

}  // namespace torchbridge
