// A file with a line of JSON for each step of one run, which goes on with it after a restart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/output/record_file.h"

namespace torchbridge::train {

// Where a run stands when it opens its files.
struct RunStart {
  std::string
      run;  // its id, which the first line of its files has; empty: of a version without ids, whose files have none
  std::int64_t step = 0;   // steps done
  bool goes_back = false;  // to a checkpoint that the user chose: what the files have of later steps is not just what a
                           // kill has undone
};

// For one rank.
class StepFile {
 public:
  // Keeps the lines of this run up to `start.step`, so that the file has each step once: it is cut off behind them.
  // Before that it is kept aside (keep_aside.h) where another run wrote it, of which no line stays, and where this one goes
  // back. Throws TrainError, which names the file and the option, "--metrics", when it cannot be written, begins with
  // something else, or another process writes it: it is locked while this lives. An empty path writes nothing; a pipe
  // or a terminal has no past, and no lock.
  StepFile(const std::filesystem::path& path, const RunStart& start, const char* option);

  // {"step":N...}, without a line end. The file's first gets the member "run".
  void write(const std::string& line);
  // Puts further members, ",\"key\":value", into the line that was written last before this start. Nothing where that
  // is not of its step, or has the first of them. REQUIRES: nothing was written yet.
  void add_to_last(const std::string& members);

  // Throws TrainError where a line is missing because the disk was full, say.
  void check_complete() const { file_.check_complete(); }

 private:
  Socket lock_;  // a descriptor that holds the file's
  RecordFile file_;
  std::string run_;        // which the next line is to have; empty where a line before has it
  std::string last_line_;  // of earlier starts; empty where it is not of the last step done
};

struct KeptLines {
  std::int64_t size = 0;           // bytes from the begin of the file
  std::string last;                // the last line, where it is of `last_step`
  std::optional<std::string> run;  // of the first line; nothing where there is no whole line
  bool has_later = false;          // whether a whole line comes after them
};

// The lines up to the first of a step after `last_step`, or one that a kill cut off. Nothing where the file begins with
// something else.
std::optional<KeptLines> lines_until(std::istream& file, std::int64_t last_step);

}  // namespace torchbridge::train
