// The stack of the calling thread as text.
#pragma once

#include <string>

namespace torchbridge {

// glibc's backtrace with C++ names, innermost first, a line for each frame; at most 128. Without
// the frames of the runtime above the one that throws an exception, or that calls std::terminate.
// Names of a program's own functions are there where it is linked with -rdynamic. May be empty.
std::string stack_text();

// The C++ name of a symbol or a type; another text as it is.
std::string demangled(const char* symbol);

}  // namespace torchbridge
