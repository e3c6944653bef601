#include "bridge/base/host_text.h"

namespace torchbridge {

bool is_host_text(std::string_view text) {
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
