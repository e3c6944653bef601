// Windows of consecutive bytes of a text for a language model whose tokens are bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "trainer_template/runtime/base/mapped_file.h"
#include "trainer_template/runtime/data/dataset.h"

namespace torchbridge::train {

// A part of the file, as fractions of its length.
struct TextPart {
  double begin = 0, end = 1;
  std::string_view use = {};  // "training"; empty: no message names it
};

// inputs and targets: [samples, length] int64, from 0 to 255; each byte's target is the byte after it. Windows begin
// `length` bytes apart; a rest at the end that is shorter than a window is not used. The file stays mapped.
class TextWindows : public Dataset {
 public:
  // Throws TrainError, which names the file: one that cannot be read, is empty, or whose part is shorter than a window
  // and its target.
  TextWindows(const std::filesystem::path& path, std::int64_t length, TextPart part = {});

  std::int64_t size() const override { return (std::ssize(bytes_) - 1) / length_; }
  Batch collate(std::span<const std::int64_t> indices) const override;
  std::vector<std::span<const std::byte>> contents() const override { return {std::as_bytes(bytes_)}; }

 private:
  MappedFile file_;
  std::span<const std::uint8_t> bytes_;  // of the part
  std::int64_t length_;
};

}  // namespace torchbridge::train
