// A file in a place that several users share, opened only where no other user can exchange, change
// or lock it.
#pragma once

#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

// The regular file at `path`, made with the mode 0600 where there is none, open to read and write;
// close-on-exec. It and its folder belong to this user or root. Nobody else may read or write the
// file, or write the folder (in one with the sticky bit, as /tmp, others may make files of their
// own). Links are not followed. What is wrong, as "it is a symbolic link: ...", is the error. The
// caller owns the descriptor.
Result<int> open_own_file(const std::string& path);

// Whether the open file is still the one at `path`.
bool is_at_path(int file, const std::string& path);

// Makes the text the durable content of the file, which is empty at no time; false, with errno set,
// where that fails.
bool rewrite(int file, std::string_view text);

}  // namespace torchbridge
