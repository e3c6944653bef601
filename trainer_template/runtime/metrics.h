// The curve of a training run as JSON lines, one a step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace torchbridge::train {

struct Evaluation {
  double loss = 0, accuracy = 0;
};

struct StepRecord {
  std::int64_t step = 0, epoch = 0;
  double loss = 0;  // mean over all ranks
  double learning_rate = 0, samples_per_s = 0;
  std::optional<Evaluation> evaluation;
};

// {"step":1,"epoch":0,"loss":2.3,"lr":0.1,"samples_per_s":1000.0}; numbers are written so that they read back as the same
// doubles; NaN and infinity as Python's json module writes them.
std::string to_json_line(const StepRecord& record);

// The lines of `text` up to `last_step`, without those that a kill cut off.
std::string lines_until(std::string_view text, std::int64_t last_step);

// For one rank. Each line is with the kernel when write() returns, so it outlives a kill of the process.
class MetricsFile {
 public:
  // Keeps the lines of earlier runs up to `last_step`, so that a curve has each step once. Throws TrainError, which names
  // the file, when it cannot be written. An empty path writes nothing.
  MetricsFile(const std::filesystem::path& path, std::int64_t last_step);
  void write(const StepRecord& record);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace torchbridge::train
