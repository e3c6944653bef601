// The data sets of a language model, whose samples are windows of consecutive tokens.
#include <algorithm>
#include <cstdint>
#include <span>

#include <torchbridge/data.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/formats/plain_text.h"

namespace torchbridge::train {
namespace {

// inputs and targets: [samples, length] int64. `copy(index, input, target)` writes the window of a
// sample, and the window one token further on.
template <class Copy>
Batch collate_windows(std::span<const std::int64_t> indices, std::int64_t length, Copy&& copy) {
  Batch batch;
  batch.inputs = batch_tensor({std::ssize(indices), length}, at::kLong);
  batch.targets = batch_tensor({std::ssize(indices), length}, at::kLong);
  auto* input = batch.inputs.mutable_data_ptr<std::int64_t>();
  auto* target = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    copy(index, input, target);
    input += length;
    target += length;
  }
  return batch;
}

}  // namespace

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

TokenWindows::TokenWindows(const std::vector<std::filesystem::path>& files,
                           const TokenWindowsOptions& options)
    : options_(options), first_of_file_{0} {
  if (files.empty()) throw TrainError("no token files are given");
  if (options_.length < 1 || options_.stride < 0) {
    throw TrainError("token windows: expected a length of at least 1 and no negative stride");
  }
  if (options_.stride == 0) options_.stride = options_.length;
  for (const auto& path : files) {
    const TokenFile& file = files_.emplace_back(path, options_.format);
    // Of windows with a target after them.
    const std::int64_t starts = std::ssize(file.tokens()) - options_.length;
    if (starts < 1) {
      throw TrainError(
          formatted("{}: has {} tokens, expected at least {}: a window of {} and a target",
                    path.string(), file.tokens().size(), options_.length + 1, options_.length));
    }
    first_of_file_.push_back(first_of_file_.back() + 1 + (starts - 1) / options_.stride);
  }
}

Batch TokenWindows::collate(std::span<const std::int64_t> indices) const {
  return collate_windows(indices, options_.length,
                         [this](std::int64_t index, std::int64_t* input, std::int64_t* target) {
                           copy(index, input, target);
                         });
}

std::vector<std::span<const std::byte>> TokenWindows::contents() const {
  std::vector<std::span<const std::byte>> pieces;
  for (const TokenFile& file : files_) pieces.push_back(std::as_bytes(file.tokens()));
  return pieces;
}

void TokenWindows::copy(std::int64_t index, std::int64_t* inputs, std::int64_t* targets) const {
  const auto after = std::ranges::upper_bound(first_of_file_, index);
  const auto number = after - first_of_file_.begin() - 1;
  const TokenFile& file = files_[number];
  const std::int64_t start = (index - first_of_file_[number]) * options_.stride;
  const auto window = file.tokens().subspan(start, options_.length + 1);
  const auto outside = std::ranges::find_if(
      window, [&](std::uint16_t token) { return token >= options_.vocabulary; });
  if (outside != window.end()) {
    throw TrainError(formatted("{}: byte {}: token {}, expected one below {}", file.path().string(),
                               file.byte_of(start + (outside - window.begin())), *outside,
                               options_.vocabulary));
  }
  std::copy(window.begin(), window.end() - 1, inputs);
  std::copy(window.begin() + 1, window.end(), targets);
}

}  // namespace torchbridge::train
