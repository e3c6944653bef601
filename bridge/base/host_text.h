// The characters of a host's name or address.
#pragma once

#include <string_view>

namespace torchbridge {

// Letters, digits and "-_.", 1 to 253 of them, as of a DNS name, or what an IPv6 address is made
// of: nothing that a shell or a format would read, and no name with a port.
inline bool is_host_text(std::string_view text) {
  constexpr std::string_view kOfIpv6 = "abcdefABCDEF0123456789:.";
  constexpr std::size_t kMaxLength = 253;
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
  if (text.empty() || text.size() > kMaxLength || text.find_first_not_of(kAllowed) != text.npos)
    return false;
  const auto colon = text.find(':');
  return colon == text.npos ||
         (text.rfind(':') != colon && text.find_first_not_of(kOfIpv6) == text.npos);
}

}  // namespace torchbridge
