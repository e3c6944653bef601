// What the output files that the user named share: the errors, and the copy of another run's file
// before it is overwritten.
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

// Copies the file to the first of FILE.aside-1, FILE.aside-2 ... that does not exist, and prints
// the reason on stderr: "'m.jsonl' belongs to another run: copied to 'm.jsonl.aside-1'". The copy
// is on disk when it returns. Throws TrainError, which names the option, if that fails; the file is
// then unchanged.
void back_up(const std::filesystem::path& file, const std::string& reason, const char* option);

}  // namespace torchbridge::train
