// Where the tokens of a token file are.
#pragma once

#include <cstdint>
#include <span>

#include <torchbridge/formats.h>

#include "bridge/base/result.h"

namespace torchbridge::train {

struct TokenLayout {
  std::uint64_t offset = 0;  // bytes before the first token
  std::uint64_t count = 0;   // tokens
};

// The position of the tokens in a file of `file_size` bytes that begins with `head`, its first 12
// bytes or the whole file. An error names the offset and the expected value.
Result<TokenLayout> token_layout(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                 TokenFormat format);

}  // namespace torchbridge::train
