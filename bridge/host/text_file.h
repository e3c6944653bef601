// Small files of the kernel, read whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bridge/base/result.h"

namespace torchbridge {

// Whether the errno means that a file or folder does not exist, or was removed while it was read.
bool is_missing(int error);

// The content without the newlines at its end; nothing where there is no such file. An error names
// the file: it cannot be read, or is longer than `limit` bytes.
Result<std::optional<std::string>> read_text(const std::string& path, std::size_t limit = 1 << 16);

}  // namespace torchbridge
