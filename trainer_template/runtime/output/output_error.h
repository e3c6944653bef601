// Errors of output files that the user named.
#pragma once

#include <filesystem>
#include <string>

#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {

// For opening the file. `option` is the one that named it: "--metrics".
inline TrainError cannot_open(const std::filesystem::path& file, const std::string& reason, const std::string& option) {
  return TrainError("cannot write '" + file.string() + "': " + reason + "; give another " + option);
}

// For writing to it later.
inline TrainError cannot_write(const std::filesystem::path& file) {
  return TrainError("cannot write '" + file.string() + "': is the disk full?");
}

}  // namespace torchbridge::train
