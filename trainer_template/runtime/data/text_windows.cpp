#include <algorithm>

#include <torchbridge/data.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/data/windows.h"
#include "trainer_template/runtime/formats/plain_text.h"

namespace torchbridge::train {

TextWindows::TextWindows(const std::filesystem::path& path, std::int64_t length, TextPart part)
    : file_(path), length_(length) {
  const auto all = file_.bytes();
  const std::string other =
      why_no_plain_text({reinterpret_cast<const char*>(all.data()), all.size()});
  if (!other.empty()) throw TrainError(formatted("{}: {}", path.string(), other));
  const auto at = [&](double fraction) {
    return static_cast<std::size_t>(fraction * static_cast<double>(all.size()));
  };
  bytes_ = all.subspan(at(part.begin), at(part.end) - at(part.begin));
  if (std::ssize(bytes_) <= length_) {
    throw TrainError(
        formatted("{}: has {} bytes{}; expected at least {}: a window of {} and a target",
                  path.string(), all.size(),
                  part.use.empty() ? "" : formatted(", {} of them for {}", bytes_.size(), part.use),
                  length_ + 1, length_));
  }
}

Batch TextWindows::collate(std::span<const std::int64_t> indices) const {
  return collate_windows(indices, length_,
                         [this](std::int64_t index, std::int64_t* input, std::int64_t* target) {
                           const auto window = bytes_.subspan(index * length_, length_ + 1);
                           std::copy(window.begin(), window.end() - 1, input);
                           std::copy(window.begin() + 1, window.end(), target);
                         });
}

}  // namespace torchbridge::train
