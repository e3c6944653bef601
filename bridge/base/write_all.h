// Writes a whole text to a descriptor.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace torchbridge {

// Waits until the descriptor takes all of it. Returns 0 or an errno. For signal handlers too.
inline int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace torchbridge
