#include "bridge/base/message_text.h"

namespace torchbridge {

std::string replaced_places(std::string_view text, std::span<const std::string> values) {
  std::string result;
  for (const std::string& value : values) {
    const std::size_t place = text.find("{}");
    result.append(text.substr(0, place)).append(value);
    text.remove_prefix(place + 2);
  }
  return result.append(text);
}

}  // namespace torchbridge
