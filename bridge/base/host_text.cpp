#include "bridge/base/host_text.h"

namespace torchbridge {

bool is_host_text(std::string_view text) {
  constexpr std::size_t kMaxLength = 253;
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
  return !text.empty() && text.size() <= kMaxLength && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

}  // namespace torchbridge
