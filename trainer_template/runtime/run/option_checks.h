// What values of options may be. For CLI11: each returns what is wrong with the text, or nothing.
#pragma once

#include <functional>
#include <string>

namespace torchbridge::train {

std::string check_backend(const std::string& name);
std::string check_init_method(const std::string& url);
std::string check_lr_schedule(const std::string& text);
std::string check_seed(const std::string& text);  // from 0 to 2^63 - 1
std::string boolean(const std::string& text);
std::string not_empty(const std::string& text);
// Finite numbers: CLI::Range lets nan pass.
std::string not_negative(const std::string& text);
std::function<std::string(const std::string&)> number_between(double least, double most);

}  // namespace torchbridge::train
