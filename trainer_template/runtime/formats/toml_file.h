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
  std::vector<std::string> values;  // as text: 0.1, true, or a string without its quotes
  bool is_list = false;
};

// The entries in the order of the file. An error begins with "FILE:LINE: ", or with "--config" if
// the file cannot be read. Sections are errors, and so are values that are not a number, a boolean,
// a string or a list of these.
Result<std::vector<TomlEntry>> read_toml(const std::filesystem::path& file);

// `text` as a TOML string, in quotes.
std::string toml_text(const std::string& text);

}  // namespace torchbridge::train
