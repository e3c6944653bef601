#include "bridge/host/oom_kills.h"

#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/host/text_file.h"

namespace torchbridge {

std::int64_t oom_kills(const std::string& root) {
  constexpr std::string_view kName = "\noom_kill ";
  const auto text = read_text(root + "/proc/vmstat");
  if (!text || !*text) return 0;
  const std::string lines = "\n" + **text;
  const auto at = lines.find(kName);
  if (at == std::string::npos) return 0;
  const auto number = std::string_view(lines).substr(at + kName.size());
  return parse_integer(number.substr(0, number.find('\n')), 0, INT64_MAX).value_or(0);
}

}  // namespace torchbridge
