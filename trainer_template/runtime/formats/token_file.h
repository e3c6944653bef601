// Files of tokens, two bytes each, little-endian: nanoGPT's and llm.c's.
//
// nanoGPT (https://github.com/karpathy/nanoGPT, data/*/prepare.py) writes the tokens alone. llm.c
// (https://github.com/karpathy/llm.c, dev/data/data_common.py) writes 256 integers of 32 bits before them: magic number
// 20240520, version 1, number of tokens, zeros.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "bridge/base/result.h"
#include "trainer_template/runtime/base/mapped_file.h"

namespace torchbridge::train {

enum class TokenFormat { kAuto, kNanoGpt, kLlmC };  // kAuto: kLlmC where the file begins with its magic number

struct TokenLayout {
  std::uint64_t offset = 0;  // bytes before the first token
  std::uint64_t count = 0;   // tokens
};

// The position of the tokens in a file of `file_size` bytes that begins with `head`, its first 12 bytes or the whole
// file. An error names the offset and the expected value.
Result<TokenLayout> token_layout(std::span<const std::uint8_t> head, std::uint64_t file_size, TokenFormat format);

// The file stays mapped as long as this lives.
class TokenFile {
 public:
  // Throws TrainError, which names the file.
  explicit TokenFile(const std::filesystem::path& path, TokenFormat format = TokenFormat::kAuto);

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::uint16_t> tokens() const { return tokens_; }
  std::uint64_t byte_of(std::int64_t token) const;  // its offset in the file

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::span<const std::uint16_t> tokens_;
};

}  // namespace torchbridge::train
