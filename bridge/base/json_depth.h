// A bound for JSON of others.
#pragma once

#include <string_view>

namespace torchbridge {

// Whether brackets and braces outside strings are nested deeper than `depth`: for a text of others,
// before a parser and a printer that call themselves at each level get it. Linear.
bool is_json_deeper_than(int depth, std::string_view json);

}  // namespace torchbridge
