// Numbers as text.
#pragma once

#include <charconv>
#include <string>

namespace torchbridge::train {

// The shortest text that reads back as the same number.
inline std::string shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace torchbridge::train
