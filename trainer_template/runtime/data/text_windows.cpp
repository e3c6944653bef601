#include "trainer_template/runtime/data/text_windows.h"

#include <algorithm>
#include <string>

#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/data/windows.h"

namespace torchbridge::train {

TextWindows::TextWindows(const std::filesystem::path& path, std::int64_t length, TextPart part)
    : file_(path), length_(length) {
  const auto all = file_.bytes();
  const auto at = [&](double fraction) { return static_cast<std::size_t>(fraction * static_cast<double>(all.size())); };
  bytes_ = all.subspan(at(part.begin), at(part.end) - at(part.begin));
  if (std::ssize(bytes_) <= length_) {
    throw TrainError(
        path.string() + ": has " + std::to_string(all.size()) + " bytes" +
        (part.use.empty() ? "" : ", " + std::to_string(bytes_.size()) + " of them for " + std::string(part.use)) +
        "; expected at least " + std::to_string(length_ + 1) + ": a window of " + std::to_string(length_) +
        " and a target");
  }
}

Batch TextWindows::collate(std::span<const std::int64_t> indices) const {
  return collate_windows(indices, length_, [this](std::int64_t index, std::int64_t* input, std::int64_t* target) {
    const auto window = bytes_.subspan(index * length_, length_ + 1);
    std::copy(window.begin(), window.end() - 1, input);
    std::copy(window.begin() + 1, window.end(), target);
  });
}

}  // namespace torchbridge::train
