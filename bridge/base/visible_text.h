// Text that a program wrote, as it may be shown on a terminal.
#pragma once

#include <string>
#include <string_view>

#include "bridge/base/utf8.h"

namespace torchbridge {

// The bytes of the character of UTF-8 (RFC 3629) that the text begins with; 0 for one that is not
// to be shown: a control character, one that changes the order of the others or takes no place
// (U+202E, U+200B), and bytes that are no UTF-8.
std::size_t visible_length(std::string_view text);

// Other characters escaped, as \x1b; cut after `longest` bytes of the text. Giving it its own
// result changes nothing.
std::string visible_line(std::string_view text, std::size_t longest = 80);

// For what holds UTF-8 alone, as JSON: the text itself where it is UTF-8, else all of it escaped.
inline std::string in_utf8(const std::string& text) {
  return is_utf8(text) ? text : visible_line(text, text.size());
}

}  // namespace torchbridge
