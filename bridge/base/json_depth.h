// A bound for JSON of others.
#pragma once

#include <string_view>

namespace torchbridge {

// Whether brackets and braces outside strings are nested deeper than `depth`: for a text of others,
// before a parser and a printer that call themselves at each level get it. Linear.
inline bool is_json_deeper_than(int depth, std::string_view json) {
  int level = 0;
  bool is_in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') {
      is_in_string = !is_in_string;
    } else if (is_in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++level > depth) return true;
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return false;
}

}  // namespace torchbridge
