// The end of a program by its command line: help or an error.
#pragma once

#include <string>

namespace torchbridge {

inline constexpr int kBadUsage = 2;  // exit code

// A text to print before the program ends: help, to standard output with exit code 0, or an error,
// to standard error.
struct CommandLineEnd {
  int exit_code;
  std::string text;
};

}  // namespace torchbridge
