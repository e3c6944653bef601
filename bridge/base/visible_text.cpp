#include "bridge/base/visible_text.h"

#include <algorithm>

#include "bridge/base/env_map.h"

namespace torchbridge {
namespace {

struct Range {
  unsigned first, last;
};

// Characters that reorder a line (Trojan Source, CVE-2021-42574), begin another one, or take no
// place in it.
constexpr Range kReorderingOrHidden[] = {
    {0x00ad, 0x00ad}, {0x034f, 0x034f},   {0x061c, 0x061c},   {0x115f, 0x1160},
    {0x17b4, 0x17b5}, {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f}, {0x3164, 0x3164},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
    {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool reorders_or_hides(unsigned character) {
  return std::ranges::any_of(kReorderingOrHidden, [=](Range range) {
    return character >= range.first && character <= range.last;
  });
}

}  // namespace

std::size_t visible_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned character = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    character = character << 6 | (byte(i) & 0x3f);
  }
  // Not: overlong forms, the control characters from U+0080, surrogates, what is above U+10FFFF.
  const bool is_wrong = first < 0xc2 || first > 0xf4 || (first == 0xc2 && second < 0xa0) ||
                        (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return is_wrong || reorders_or_hides(character) ? 0 : length;
}

std::string visible_line(std::string_view text, std::size_t longest) {
  std::string shown;
  std::size_t at = 0;
  while (at < std::min(text.size(), longest)) {
    const std::size_t length = visible_length(text.substr(at));
    shown += length > 0 ? std::string(text.substr(at, length)) : printable(text.substr(at, 1));
    at += std::max<std::size_t>(length, 1);
  }
  return at < text.size() ? shown + "..." : shown;
}

}  // namespace torchbridge
