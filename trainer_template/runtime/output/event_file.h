// A file of TensorBoard's event records (formats/event_record.h) in a run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "trainer_template/runtime/output/record_file.h"

namespace torchbridge::train {

// For one rank. When flush() returns, the kernel has all that was written: a kill of the process
// does not lose it.
class EventFile {
 public:
  // Makes a new file in `folder`, and the folder; an empty path writes nothing. The file has a
  // record that the run resumes after `last_step` (0: from the start): TensorBoard then drops later
  // steps of earlier files. Throws TrainError, which names the file.
  EventFile(const std::filesystem::path& folder, std::int64_t last_step);
  void write(std::int64_t step, const std::string& name, double value);
  void flush();
  // Throws TrainError if numbers are missing, as after a full disk.
  void check_complete() const { file_.check_complete(); }

 private:
  void put(const std::string& event);

  bool enabled_ = false;
  RecordFile file_;
  std::string events_;  // not written yet
};

}  // namespace torchbridge::train
