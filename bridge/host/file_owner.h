// Whether a file in a place that several users share is this user's alone.
#pragma once

#include <sys/stat.h>

#include <string>

namespace torchbridge {

// The bits of a file's mode for its group and for others.
inline constexpr mode_t kWrite = S_IWGRP | S_IWOTH, kReadOrWrite = kWrite | S_IRGRP | S_IROTH;

// What lets another user than this one and root do what `bits` allow, as a predicate: "belongs to
// uid 1001", "has the mode 0664"; empty where nothing does. `file` is of fstat: of what is open,
// and not of what a name led to.
std::string access_of_others(mode_t bits, const struct stat& file);

}  // namespace torchbridge
