#include "trainer_template/runtime/output/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

constexpr std::chrono::milliseconds kBarPause{100}, kLinePause{10'000};

double part_of(std::int64_t done, std::int64_t total) {
  return total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
}

bool is_on_a_terminal() {
  return isatty(STDOUT_FILENO) && (tcgetpgrp(STDOUT_FILENO) >= 0 || is_forwarded_to_terminal());
}

bool is_redrawn(ProgressStyle style) {
  return style == ProgressStyle::kBar || (style == ProgressStyle::kAuto && is_on_a_terminal());
}

std::string percentage(std::int64_t done, std::int64_t total) {
  char text[8];
  std::snprintf(text, sizeof text, "%3d%%", static_cast<int>(part_of(done, total) * 100));
  return text;
}

}  // namespace

std::string bar(std::int64_t done, std::int64_t total, int width) {
  const int filled = static_cast<int>(part_of(done, total) * width);
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] " +
         percentage(done, total);
}

std::string duration_text(double seconds) {
  constexpr std::int64_t kMinute = 60, kHour = 60 * kMinute;
  const auto all = std::llround(std::max(seconds, 0.0));
  char text[40];
  if (all >= kHour) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", all / kHour, all / kMinute % 60,
                  all % kMinute);
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

std::string progress_line(const ProgressNumbers& n, int columns) {
  char loss[64], rate[64];
  std::snprintf(loss, sizeof loss, "loss %.4f", n.loss);
  std::snprintf(rate, sizeof rate, "%.0f %s", n.rate, n.unit);
  std::string logged;
  for (const auto& [name, value] : n.logged) {
    char number[32];
    std::snprintf(number, sizeof number, " %.4g", value);
    logged += (logged.empty() ? "" : "  ") + name + number;
  }
  const struct {
    int order;  // the last one is left out first
    std::string text;
  } kParts[] = {{0, formatted("step {}/{}", n.step, n.total)},
                {4, formatted("epoch {}", n.epoch)},
                {1, loss},
                {5, logged},
                {3, rate},
                {2, n.seconds_left ? formatted("{} left", duration_text(*n.seconds_left)) : ""}};
  constexpr int kBar = 30, kLeastBar = 5, kAround = 7, kPercentage = 4;  // "[] 100%", "100%"
  std::string text;
  for (int most = 5; most >= 0; --most) {
    text.clear();
    for (const auto& part : kParts) {
      if (part.order <= most && !part.text.empty()) text += "  " + part.text;
    }
    const int room = columns - 1 - static_cast<int>(text.size());
    if (room >= kAround + kLeastBar)
      return bar(n.step, n.total, std::min(room - kAround, kBar)) + text;
    if (room >= kPercentage) return percentage(n.step, n.total) + text;
  }
  return text.substr(2, static_cast<std::size_t>(std::max(columns - 1, 0)));
}

void Progress::show(const StepMetrics& record) {
  const auto now = Clock::now();
  const double rate = this->rate(record);
  const bool last = record.step == total_steps_;
  const bool due = now - last_shown_ >= (redrawn_ ? kBarPause : kLinePause);
  if (!shown_ || !(due || (redrawn_ && last))) return;
  last_shown_ = now;
  const ProgressNumbers numbers{
      .step = record.step,
      .total = total_steps_,
      .epoch = record.epoch,
      .loss = record.loss,
      .rate = rate,
      .unit = record.tokens_per_s ? "tokens/s" : "samples/s",
      .seconds_left = last ? std::nullopt : std::optional(seconds_left(record.step, now)),
      .logged = record.logged};
  constexpr int kUnlimited = 1000;
  const std::string line = progress_line(numbers, redrawn_ ? terminal_columns() : kUnlimited);
  if (redrawn_) return draw_line(line);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// The mean of about the last ten seconds: one step may take much longer than the others.
double Progress::rate(const StepMetrics& record) {
  constexpr double kSeconds = 10;
  const double of_step = record.tokens_per_s.value_or(record.samples_per_s),
               kept = std::exp(-record.seconds / kSeconds);
  seconds_ = seconds_ * kept + record.seconds;
  units_ = units_ * kept + of_step * record.seconds;
  return seconds_ > 0 ? units_ / seconds_ : of_step;
}

// Assumes the mean time of the steps so far, evaluations and saves included.
double Progress::seconds_left(std::int64_t step, Clock::time_point now) const {
  const double done = static_cast<double>(step - done_),
               left = static_cast<double>(total_steps_ - step);
  return std::chrono::duration<double>(now - begin_).count() / done * left;
}

}  // namespace torchbridge::train
