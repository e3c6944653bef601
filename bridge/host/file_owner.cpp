#include "bridge/host/file_owner.h"

#include <unistd.h>

#include <cstdio>

#include "bridge/base/message_text.h"

namespace torchbridge {

std::string access_of_others(mode_t bits, const struct stat& file) {
  if (file.st_uid != geteuid() && file.st_uid != 0)
    return formatted("belongs to uid {}", file.st_uid);
  if ((file.st_mode & bits) == 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "has the mode %04o",
                static_cast<unsigned>(file.st_mode & 07777));
  return text;
}

}  // namespace torchbridge
