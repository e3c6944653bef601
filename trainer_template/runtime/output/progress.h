// The progress of training, for a person who watches.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchbridge/part.h>
#include <torchbridge/settings.h>

namespace torchbridge::train {

// For one rank.
class Progress {
 public:
  // `done`: steps done before this process.
  Progress(ProgressStyle style, std::int64_t total_steps, std::int64_t done = 0);
  ~Progress();  // ends the bar's line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const StepMetrics& record);

 private:
  using Clock = std::chrono::steady_clock;
  double rate(const StepMetrics& record);
  double seconds_left(std::int64_t step, Clock::time_point now) const;

  bool shown_, redrawn_;
  double seconds_ = 0, units_ = 0;  // of the last steps: their weight falls with their age
  std::int64_t total_steps_, done_;
  const Clock::time_point begin_;
  Clock::time_point last_shown_;
};

// "0:07", "12:03", "3:00:00".
std::string duration_text(double seconds);

// The numbers of a progress line.
struct ProgressNumbers {
  std::int64_t step = 0, total = 0, epoch = 0;
  double loss = 0, rate = 0;
  const char* unit = "samples/s";
  std::optional<double> seconds_left;
  std::vector<std::pair<std::string, double>> logged = {};  // by name
};

// Shorter than `columns`: a terminal would wrap a longer line, and only its last row would be
// redrawn. What does not fit is left out: the bar but for its percentage first, then the logged
// numbers, epoch, rate, remaining time and loss.
std::string progress_line(const ProgressNumbers& numbers, int columns);

// "[#####.....]  50%", for `done` of `total`; `width` characters between the brackets.
std::string bar(std::int64_t done, std::int64_t total, int width);

}  // namespace torchbridge::train
