// A file of records other than checkpoints: a full disk loses records and does not end training.
#pragma once

#include <filesystem>
#include <string_view>

#include "bridge/net/socket.h"

namespace torchbridge::train {

// For one rank. Each record goes to the kernel at once: a kill of the process does not lose it.
class RecordFile {
 public:
  // Discards all records.
  RecordFile() = default;
  // Appends to an existing file. Throws TrainError, which names the file and `option`, such as
  // "--metrics".
  RecordFile(const std::filesystem::path& path, const char* option);

  // Writes the whole record or nothing of it. Returns false for nothing, with one line on stderr
  // for all failures in a row.
  bool append(std::string_view record) { return replace_end({}, record); }
  // Replaces the last bytes of the file, which are `end`, by the record. REQUIRES: a regular file,
  // unless `end` is empty.
  bool replace_end(std::string_view end, std::string_view record);
  // Whether it is a regular file without bytes.
  bool is_empty() const;
  // Throws TrainError if a record is missing.
  void check_complete() const;

 private:
  // Returns 0, or errno: then the file is unchanged.
  int write_end(std::string_view end, std::string_view record);

  std::filesystem::path path_;
  Socket file_;  // owns the file's descriptor
  bool is_regular_ = false, failing_ = false, incomplete_ = false;
};

}  // namespace torchbridge::train
