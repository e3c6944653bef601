#include "bridge/base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> two_above, above(to.size() + 1), row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    two_above = std::exchange(above, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t change = above[j] + (lower(from[i]) == lower(to[j]) ? 0 : 1);
      row[j + 1] = std::min({change, row[j] + 1, above[j + 1] + 1});
      const bool swapped = i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j];
      if (swapped) row[j + 1] = std::min(row[j + 1], two_above[j - 1] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view text, std::span<const std::string> names) {
  constexpr std::size_t kLongest = 64;  // longer than any name, and the work grows with the length
  if (text.size() > kLongest) return {};
  std::string nearest;
  std::size_t least = kLongest;
  for (const std::string& name : names) {
    const std::size_t steps = distance(text, name);
    if (steps < least && steps * 3 <= std::max(text.size(), name.size())) {
      least = steps;
      nearest = name;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view text, std::span<const std::string> names) {
  const std::string nearest = nearest_name(text, names);
  return nearest.empty() ? "" : formatted("; did you mean '{}'?", nearest);
}

}  // namespace torchbridge
