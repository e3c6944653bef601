#include <torchbridge/train/data/text_windows.h>

#include <torchbridge/train/errors.h>

#include <algorithm>
#include <string>

namespace torchbridge::train {

TextWindows::TextWindows(const std::filesystem::path& path, std::int64_t length, TextPart part) : file_(path), length_(length) {
  const auto all = file_.bytes();
  const auto at = [&](double share) { return static_cast<std::size_t>(share * static_cast<double>(all.size())); };
  bytes_ = all.subspan(at(part.begin), at(part.end) - at(part.begin));
  if (std::ssize(bytes_) <= length_) {
    throw TrainError(path.string() + ": has " + std::to_string(all.size()) + " bytes, of which this part is " + std::to_string(bytes_.size()) +
                     "; a window of " + std::to_string(length_) + " and the byte after it do not fit");
  }
}

Batch TextWindows::collate(std::span<const std::int64_t> indices) const {
  Batch batch;
  batch.inputs = batch_tensor({std::ssize(indices), length_}, at::kLong);
  batch.targets = batch_tensor({std::ssize(indices), length_}, at::kLong);
  auto* input = batch.inputs.mutable_data_ptr<std::int64_t>();
  auto* target = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const auto window = bytes_.subspan(index * length_, length_ + 1);
    input = std::copy(window.begin(), window.end() - 1, input);
    target = std::copy(window.begin() + 1, window.end(), target);
  }
  return batch;
}

}  // namespace torchbridge::train
