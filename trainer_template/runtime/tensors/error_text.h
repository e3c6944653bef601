// The text of an exception, for messages.
#pragma once

#include <exception>
#include <string>

namespace torchbridge::train {

// As one line, without the stack that c10 adds.
std::string one_line(const std::exception& error);

}  // namespace torchbridge::train
