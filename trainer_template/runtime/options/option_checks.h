// Checks of option values: each returns a message about an invalid text, or "" for a valid one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace torchbridge::train {

std::string check_backend(const std::string& name);
std::string check_init_method(const std::string& url);
std::string not_empty(const std::string& text);
std::string existing_file(const std::string& path);
std::function<std::string(const std::string&)> at_least(std::int64_t least);  // whole numbers
std::function<std::string(const std::string&)> whole_between(std::int64_t least, std::int64_t most);
// Finite numbers.
std::string not_negative(const std::string& text);
std::function<std::string(const std::string&)> number_between(double least, double most);

}  // namespace torchbridge::train
