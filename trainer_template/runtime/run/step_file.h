// A file with a line of JSON for each step, which a restarted run goes on with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iosfwd>
#include <string>

namespace torchbridge::train {

// For one rank. Each line is with the kernel when write() returns, so it outlives a kill of the process.
class StepFile {
 public:
  // Keeps the lines of earlier runs up to `last_step`, so that the file has each step once. Throws TrainError, which names the file and
  // the option, "--metrics", when it cannot be written. An empty path writes nothing; a pipe or a terminal has no past.
  StepFile(const std::filesystem::path& path, std::int64_t last_step, const std::string& option);

  // {"step":N...}, without a line end.
  void write(const std::string& line);
  // Puts further members, ",\"key\":value", into the line that the runs before wrote last. Nothing where that is not of `last_step`, or has
  // the first of them. REQUIRES: nothing was written yet.
  void add_to_last(const std::string& members);

  bool enabled() const { return !path_.empty(); }

 private:
  void check() const;

  std::filesystem::path path_;
  std::ofstream file_;
  std::string last_line_;  // of earlier runs; empty where it is not of `last_step`
};

// Copies the lines up to `last_step`, without those that a kill cut off; returns the last one where it is of that step.
std::string copy_lines_until(std::istream& from, std::int64_t last_step, std::ostream& to);

}  // namespace torchbridge::train
