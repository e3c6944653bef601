// A file with a line of JSON for each step, which a restarted run goes on with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

#include <torchbridge/net/socket.h>
#include <torchbridge/train/run/record_file.h>

namespace torchbridge::train {

// For one rank.
class StepFile {
 public:
  // Keeps the lines of earlier runs up to `last_step`, so that the file has each step once: it is cut off behind them. Throws TrainError, which
  // names the file and the option, "--metrics", when it cannot be written, begins with something else, or another run writes it: it is locked
  // while this lives. An empty path writes nothing; a pipe or a terminal has no past, and no lock.
  StepFile(const std::filesystem::path& path, std::int64_t last_step, const char* option);

  // {"step":N...}, without a line end.
  void write(const std::string& line);
  // Puts further members, ",\"key\":value", into the line that the runs before wrote last. Nothing where that is not of `last_step`, or has
  // the first of them. REQUIRES: nothing was written yet.
  void add_to_last(const std::string& members);

  // Throws TrainError where a line is missing because the disk was full, say.
  void check_complete() const { file_.check_complete(); }

 private:
  Socket lock_;  // a descriptor that holds the file's
  RecordFile file_;
  std::string last_line_;  // of earlier runs; empty where it is not of `last_step`
};

struct KeptLines {
  std::int64_t size = 0;  // bytes from the begin of the file
  std::string last;       // the last line, where it is of `last_step`
};

// The lines up to the first of a step after `last_step`, or one that a kill cut off. Nothing where the file begins with something else.
std::optional<KeptLines> lines_until(std::istream& file, std::int64_t last_step);

}  // namespace torchbridge::train
