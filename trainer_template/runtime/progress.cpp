#include <torchbridge/train/progress.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace torchbridge::train {
namespace {

constexpr int kWidth = 30;
constexpr std::chrono::milliseconds kTerminalPause{100}, kPlainPause{10'000};

}  // namespace

std::string bar(std::int64_t done, std::int64_t total) {
  const double part = total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const int filled = static_cast<int>(part * kWidth);
  char percent[8];
  std::snprintf(percent, sizeof percent, "%3d%%", static_cast<int>(part * 100));
  return "[" + std::string(filled, '#') + std::string(kWidth - filled, '.') + "] " + percent;
}

Progress::Progress(bool shown, std::int64_t total_steps)
    : shown_(shown), terminal_(isatty(STDOUT_FILENO)), total_steps_(total_steps), last_shown_(Clock::now()) {}

void Progress::show(const StepRecord& record) {
  const auto now = Clock::now();
  const bool last = record.step == total_steps_;
  const bool due = now - last_shown_ >= (terminal_ ? kTerminalPause : kPlainPause);
  if (!shown_ || !(due || (terminal_ && last))) return;
  last_shown_ = now;
  std::printf("%s%s  step %lld/%lld  epoch %lld  loss %.4f  %.0f samples/s%s", terminal_ ? "\r" : "",
              bar(record.step, total_steps_).c_str(), static_cast<long long>(record.step),
              static_cast<long long>(total_steps_), static_cast<long long>(record.epoch), record.loss,
              record.samples_per_s, terminal_ ? "\x1b[K" : "\n");
  std::fflush(stdout);
  on_line_ = terminal_;
}

void Progress::finish() {
  if (on_line_) std::printf("\n");
  std::fflush(stdout);
  on_line_ = false;
}

}  // namespace torchbridge::train
