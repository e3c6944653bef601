#include "trainer_template/runtime/output/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

constexpr std::chrono::milliseconds kBarPause{100}, kLinePause{10'000};

bool is_on_a_terminal() {
  return isatty(STDOUT_FILENO) && (tcgetpgrp(STDOUT_FILENO) >= 0 || is_forwarded_to_terminal());
}

bool is_redrawn(ProgressStyle style) {
  return style == ProgressStyle::kBar || (style == ProgressStyle::kAuto && is_on_a_terminal());
}

// The terminal's width; a large number if there is no terminal or its width is not known.
int columns() {
  winsize size{};
  constexpr int kUnknown = 1000;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknown;
}

}  // namespace

std::string bar(std::int64_t done, std::int64_t total, int width) {
  const double part = total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const int filled = static_cast<int>(part * width);
  char percent[8];
  std::snprintf(percent, sizeof percent, "%3d%%", static_cast<int>(part * 100));
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] " + percent;
}

std::string duration_text(double seconds) {
  constexpr std::int64_t kMinute = 60, kHour = 60 * kMinute;
  const auto all = std::llround(std::max(seconds, 0.0));
  char text[40];
  if (all >= kHour) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", all / kHour, all / kMinute % 60, all % kMinute);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", all / kMinute, all % kMinute);
  }
  return text;
}

Progress::Progress(ProgressStyle style, std::int64_t total_steps, std::int64_t done)
    : shown_(style != ProgressStyle::kNone),
      redrawn_(is_redrawn(style)),
      total_steps_(total_steps),
      done_(done),
      begin_(Clock::now()),
      last_shown_(begin_) {}

Progress::~Progress() { end_drawn_line(); }

void Progress::show(const StepMetrics& record) {
  const auto now = Clock::now();
  const bool last = record.step == total_steps_;
  const bool due = now - last_shown_ >= (redrawn_ ? kBarPause : kLinePause);
  if (!shown_ || !(due || (redrawn_ && last))) return;
  last_shown_ = now;
  char numbers[160];
  const int length = std::snprintf(
      numbers, sizeof numbers, "  step %lld/%lld  epoch %lld  loss %.4f  %.0f %s%s",
      static_cast<long long>(record.step), static_cast<long long>(total_steps_), static_cast<long long>(record.epoch),
      record.loss, record.tokens_per_s.value_or(record.samples_per_s), record.tokens_per_s ? "tokens/s" : "samples/s",
      last ? "" : ("  " + duration_text(seconds_left(record.step, now)) + " left").c_str());
  // If the terminal wrapped the line, only its last row would be redrawn.
  constexpr int kWidth = 30, kAround = 8;  // "[] 100%", and the last column stays free
  const int width = redrawn_ ? std::clamp(columns() - length - kAround, 0, kWidth) : kWidth;
  const std::string line = bar(record.step, total_steps_, width) + numbers;
  if (redrawn_) return draw_line(line);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Assumes the mean time of the steps so far, evaluations and saves included.
double Progress::seconds_left(std::int64_t step, Clock::time_point now) const {
  const double done = static_cast<double>(step - done_), left = static_cast<double>(total_steps_ - step);
  return std::chrono::duration<double>(now - begin_).count() / done * left;
}

}  // namespace torchbridge::train
