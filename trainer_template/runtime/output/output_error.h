// Errors of output files that the user named.
#pragma once

#include <filesystem>
#include <string>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge::train {

// For opening the file. `option` is the one that named it: "--metrics".
inline TrainError cannot_open(const std::filesystem::path& file, const std::string& reason,
                              const std::string& option) {
  return TrainError(formatted("cannot write '{}': {}; give another {}", printable(file.string()),
                              reason, option));
}

// For writing to it later.
inline TrainError cannot_write(const std::filesystem::path& file) {
  return TrainError(formatted("cannot write '{}': is the disk full?", printable(file.string())));
}

}  // namespace torchbridge::train
