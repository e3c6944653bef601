// Parses "128,64" in the value of --model.
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torchbridge/task.h>

// Numbers from 1 to `most`; nothing for any other text.
inline std::optional<std::vector<std::int64_t>> number_list(const std::string& text,
                                                            std::int64_t most) {
  std::vector<std::int64_t> numbers;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) {
    const auto number = torchbridge::parse_integer(word, 1, most);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  if (numbers.empty() || text.ends_with(',')) return std::nullopt;
  return numbers;
}
