#include "bridge/host/process_tree.h"

#include <unistd.h>

#include <fstream>
#include <iterator>

#include "bridge/base/env_map.h"

namespace torchbridge {

std::vector<ProcessEntry> this_and_ancestors() {
  constexpr std::size_t kDeepest = 256;
  std::vector<ProcessEntry> found;
  for (std::int64_t id = getpid(); id > 0 && found.size() < kDeepest;) {
    std::ifstream file("/proc/" + std::to_string(id) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    // "12 (a name) with (parentheses)) S 7 ...": the name ends at the last one.
    const auto open = text.find('('), close = text.rfind(')');
    if (open == text.npos || close == text.npos || close + 4 >= text.size()) break;
    found.push_back({id, text.substr(open + 1, close - open - 1)});
    const auto parent = std::string_view(text).substr(close + 4);
    id = parse_integer(parent.substr(0, parent.find(' ')), 0, INT64_MAX).value_or(0);
  }
  return found;
}

}  // namespace torchbridge
