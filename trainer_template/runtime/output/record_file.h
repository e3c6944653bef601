// What a run writes beside its checkpoints: a disk that takes nothing any more does not end training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "bridge/net/socket.h"

namespace torchbridge::train {

// For one rank. What was written is with the kernel at once, so it outlives a kill of the process.
class RecordFile {
 public:
  // Takes everything and keeps nothing.
  RecordFile() = default;
  // Goes on at the end of what is there; a pipe or a terminal has no end. Throws TrainError, which names file and
  // option, "--metrics".
  RecordFile(const std::filesystem::path& path, const char* option);

  // All of the record or nothing of it: then false, and a line on stderr says so, once until something can be written
  // again.
  bool append(std::string_view record) { return replace_end({}, record); }
  // `end`, which the file ends with, gives way to the record. REQUIRES: a regular file, unless `end` is empty.
  bool replace_end(std::string_view end, std::string_view record);
  // Throws TrainError where a record is missing.
  void check_complete() const;

 private:
  // 0, or why not; then the file is as before.
  int write_at(std::int64_t position, std::string_view end, std::string_view record);

  std::filesystem::path path_;
  Socket file_;            // whose descriptor it owns
  std::int64_t size_ = 0;  // of a regular file
  bool is_regular_ = false, failing_ = false, incomplete_ = false;
};

}  // namespace torchbridge::train
