// Files of options, in TOML.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

// KEY = VALUE, or KEY = [VALUE, ...].
struct TomlEntry {
  std::string key;
  int line = 0;                     // from 1 on
  std::vector<std::string> values;  // as text: 0.1, true, what stands in quotes
  bool is_list = false;
};

// In the file's order. An error begins with "FILE:LINE: ", or with "--config" where the file cannot be read. Sections,
// and values that are neither number, truth value, text nor a list of them, are errors.
Result<std::vector<TomlEntry>> read_toml(const std::filesystem::path& file);

// In quotes.
std::string toml_text(const std::string& text);

}  // namespace torchbridge::train
