#include "bridge/host/process_tree.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/base/take_until.h"
#include "bridge/host/text_file.h"

namespace torchbridge {
namespace {

struct StatLine {
  std::string name;
  int parent = 0;
  std::int64_t cpu_ticks = 0;  // of it and of the children that it has waited for
};

// Fields after the name, by the numbers of proc(5).
constexpr int kState = 3, kParent = 4, kUserTime = 14, kChildrensSystemTime = 17;

// "12 (a name) with (parentheses)) S 7 ...": the name ends at the last parenthesis.
std::optional<StatLine> read_stat(std::int64_t id) {
  const auto content = read_text("/proc/" + std::to_string(id) + "/stat");
  if (!content || !*content) return std::nullopt;  // it may end while it is read
  const std::string& text = **content;
  const auto open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos || close + 4 >= text.size()) return std::nullopt;
  StatLine line{text.substr(open + 1, close - open - 1)};
  std::string_view rest = std::string_view(text).substr(close + 2);
  for (int field = kState; field <= kChildrensSystemTime; ++field) {
    const auto value = parse_integer(take_until(rest, ' '), 0, INT64_MAX).value_or(0);
    if (field == kParent) line.parent = static_cast<int>(value);
    if (field >= kUserTime) line.cpu_ticks += value;
  }
  return line;
}

}  // namespace

std::vector<ProcessEntry> this_and_ancestors() {
  constexpr std::size_t kDeepest = 256;
  std::vector<ProcessEntry> found;
  for (std::int64_t id = getpid(); id > 0 && found.size() < kDeepest;) {
    const auto process = read_stat(id);
    if (!process) break;
    found.push_back({id, process->name});
    id = process->parent;
  }
  return found;
}

std::vector<int> children_of(int id) {
  std::vector<int> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto child = parse_integer(entry.path().filename().native(), 1, INT32_MAX);
    const auto process = child ? read_stat(*child) : std::nullopt;
    if (process && process->parent == id) children.push_back(static_cast<int>(*child));
  }
  return children;
}

double cpu_seconds_of(const std::vector<int>& ids) {
  std::vector<int> all = ids;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const int child : children_of(all[i])) all.push_back(child);
  }
  std::int64_t ticks = 0;
  for (const int id : all) ticks += read_stat(id).value_or(StatLine{}).cpu_ticks;
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace torchbridge
