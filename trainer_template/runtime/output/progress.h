// The progress of training, for a person who watches.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "trainer_template/runtime/output/metrics.h"

namespace torchbridge::train {

// kBar: a bar that is redrawn in its line. kLines: a line every ten seconds. kAuto: the bar on a terminal, else lines.
// Under srun the output of a task is never a terminal, even if a person watches it.
enum class ProgressStyle { kNone, kAuto, kBar, kLines };

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
  double seconds_left(std::int64_t step, Clock::time_point now) const;

  bool shown_, redrawn_;
  std::int64_t total_steps_, done_;
  const Clock::time_point begin_;
  Clock::time_point last_shown_;
};

// "0:07", "12:03", "3:00:00".
std::string duration_text(double seconds);

// "[#####.....]  50%", for `done` of `total`; `width` characters between the brackets.
std::string bar(std::int64_t done, std::int64_t total, int width);

}  // namespace torchbridge::train
