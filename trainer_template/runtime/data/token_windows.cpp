#include <algorithm>

#include <torchbridge/data.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/data/windows.h"

namespace torchbridge::train {

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
