#include "bridge/base/visible_text.h"

#include <algorithm>

#include "bridge/base/env_map.h"

namespace torchbridge {
namespace {

struct Range {
  std::uint32_t first, last;
};

// Characters that reorder a line (Trojan Source, CVE-2021-42574), begin another one, or take no
// place in it.
constexpr Range kReorderingOrHidden[] = {
    {0x00ad, 0x00ad}, {0x034f, 0x034f},   {0x061c, 0x061c},   {0x115f, 0x1160},
    {0x17b4, 0x17b5}, {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f}, {0x3164, 0x3164},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
    {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool reorders_or_hides(std::uint32_t code) {
  return std::ranges::any_of(
      kReorderingOrHidden, [=](Range range) { return code >= range.first && code <= range.last; });
}

}  // namespace

std::size_t visible_length(std::string_view text) {
  const auto character = first_character(text);
  if (!character || is_control(character->code) || reorders_or_hides(character->code)) return 0;
  return character->size;
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
