// What a person sees of the training while it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <torchbridge/train/run/metrics.h>

namespace torchbridge::train {

// A bar that is redrawn in its line, a plain line every ten seconds, or, by itself, the bar on a terminal and lines
// elsewhere. Under srun the output of a task is never a terminal, though a person may be looking at it.
enum class ProgressStyle { kNone, kAuto, kBar, kLines };

// For one rank.
class Progress {
 public:
  Progress(ProgressStyle style, std::int64_t total_steps);
  void show(const StepRecord& record);
  // The bar, so far as it is drawn, is left on its own line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool shown_, redrawn_;
  std::int64_t total_steps_;
  Clock::time_point last_shown_;
  bool on_line_ = false;
};

// "[#####.....]  50%", for `done` of `total`; `width` characters between the brackets.
std::string bar(std::int64_t done, std::int64_t total, int width);

}  // namespace torchbridge::train
