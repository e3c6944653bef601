#include <algorithm>

#include <c10/util/Exception.h>
#include <torchbridge/errors.h>

namespace torchbridge::train {

std::string one_line(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = c10_error ? c10_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find("\nException raised from"));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace torchbridge::train
