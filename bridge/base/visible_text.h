// Characters of UTF-8 (RFC 3629), and the text that a program wrote as it may be shown on a
// terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace torchbridge {

struct Utf8Character {
  std::uint32_t code;
  std::size_t size;  // in bytes
};

// The character that the text begins with; nothing where it begins with none.
inline std::optional<Utf8Character> first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return std::nullopt;
  if (byte(0) < 0x80) return Utf8Character{byte(0), 1};
  const std::size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return std::nullopt;
  std::uint32_t code = byte(0) & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return std::nullopt;
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[size] || code > 0x10ffff || is_surrogate) return std::nullopt;
  return Utf8Character{code, size};
}

inline bool is_utf8(std::string_view text) {
  while (const auto character = first_character(text)) text.remove_prefix(character->size);
  return text.empty();
}

inline bool is_control(std::uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

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
