// A file with a line of JSON for each step of one run; a restart continues it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/output/record_file.h"

namespace torchbridge::train {

// What add_to_last() has found and done: the line had these members, or got them.
enum class LastLine { kMissing, kHadThem, kExtended };

// The state of a run when it opens its files.
struct RunStart {
  // Its id, in the first line of its files; empty for a run of a version without ids.
  std::string run;
  std::int64_t step = 0;   // steps done
  bool goes_back = false;  // resumes from a checkpoint that the user named, which may be older than
                           // the newest one
};

// For one rank.
class StepFile {
 public:
  // Truncates the file behind the lines of this run up to `start.step`, so that it has each step
  // once. A file of another run is emptied. Before lines of another run are removed, or lines after
  // the step to which this run goes back, the file is copied (output_file.h). The file is locked
  // while this lives. Throws TrainError, which names the file and `option`, such as "--metrics", if
  // the file cannot be written, does not begin as lines of a StepFile do, or is locked by another
  // process. An empty path writes nothing; a pipe or a terminal is neither truncated nor locked.
  StepFile(const std::filesystem::path& path, const RunStart& start, const char* option);

  // Appends {"step":N...}, given without a line end. The file's first line gets the member "run".
  void write(const std::string& line);
  // Adds the members `,"key":value` to the last line of the previous start, unless that line is not
  // of the step `start.step` or has the first key already. REQUIRES: nothing was written yet.
  LastLine add_to_last(const std::string& members);

  // Throws TrainError if a line is missing, as after a full disk.
  void check_complete() const { file_.check_complete(); }

 private:
  Socket lock_;  // owns the descriptor that holds the file's lock
  RecordFile file_;
  std::string run_;         // the id of the run, which the file's first line has
  bool names_run_ = false;  // whether a line has it
  std::string last_line_;   // of earlier starts; empty if it is not of the last step done
};

struct KeptLines {
  std::int64_t size = 0;           // bytes from the start of the file
  std::string last;                // the last line if it is of `last_step`, else empty
  std::optional<std::string> run;  // of the first line; nothing if there is no whole line
  bool has_later = false;          // whether a whole line comes after them
};

// The lines before the first one of a step after `last_step`, or before one that a kill cut off.
// Nothing if the file does not begin with such a line.
std::optional<KeptLines> lines_until(std::istream& file, std::int64_t last_step);

}  // namespace torchbridge::train
