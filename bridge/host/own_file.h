// Whether a file in a place that several users share is this user's alone, and such a file opened
// only where no other user can exchange, change or lock it.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

// The bits of a file's mode for its group and for others.
inline constexpr mode_t kWrite = S_IWGRP | S_IWOTH, kReadOrWrite = kWrite | S_IRGRP | S_IROTH;

// What lets another user than this one and root do what `bits` allow, as a predicate: "belongs to
// uid 1001", "has the mode 0664"; empty where nothing does. `file` is of fstat: of what is open,
// and not of what a name led to.
std::string access_of_others(mode_t bits, const struct stat& file);

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
