// Several texts as one, to be sent: each with its length before it, "5 hello3 abc".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torchbridge {

std::string join_values(const std::vector<std::string>& values);

// Empty where `text` was not made by join_values.
std::vector<std::string> split_values(std::string_view text);

}  // namespace torchbridge
