#include <torchbridge/train/run/progress.h>

#include <torchbridge/train/console.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

namespace torchbridge::train {
namespace {

constexpr std::chrono::milliseconds kBarPause{100}, kLinePause{10'000};

// mpirun gives rank 0 a terminal of its own, which is not the one that the job was started from, and hands on what comes there to its own stdout.
bool is_on_a_terminal() {
  if (!isatty(STDOUT_FILENO)) return false;
  if (tcgetpgrp(STDOUT_FILENO) >= 0) return true;
  std::error_code error;
  const auto target = [&](const std::string& process) { return std::filesystem::read_symlink("/proc/" + process + "/fd/1", error).string(); };
  const std::string parents = target(std::to_string(getppid()));
  return (parents.starts_with("/dev/pts/") || parents.starts_with("/dev/tty")) && parents != target("self");
}

bool is_redrawn(ProgressStyle style) { return style == ProgressStyle::kBar || (style == ProgressStyle::kAuto && is_on_a_terminal()); }

// Of the terminal; a large number where there is none, or it does not say.
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

Progress::Progress(ProgressStyle style, std::int64_t total_steps)
    : shown_(style != ProgressStyle::kNone), redrawn_(is_redrawn(style)), total_steps_(total_steps), last_shown_(Clock::now()) {}

Progress::~Progress() { end_drawn_line(); }

void Progress::show(const StepRecord& record) {
  const auto now = Clock::now();
  const bool last = record.step == total_steps_;
  const bool due = now - last_shown_ >= (redrawn_ ? kBarPause : kLinePause);
  if (!shown_ || !(due || (redrawn_ && last))) return;
  last_shown_ = now;
  char numbers[160];
  const int length = std::snprintf(numbers, sizeof numbers, "  step %lld/%lld  epoch %lld  loss %.4f  %.0f samples/s", static_cast<long long>(record.step),
                                   static_cast<long long>(total_steps_), static_cast<long long>(record.epoch), record.loss, record.samples_per_s);
  // A line that the terminal breaks would be redrawn in its last row only.
  constexpr int kWidth = 30, kAround = 8;  // "[] 100%", and the last column stays free
  const int width = redrawn_ ? std::clamp(columns() - length - kAround, 0, kWidth) : kWidth;
  const std::string line = bar(record.step, total_steps_, width) + numbers;
  if (redrawn_) return draw_line(line);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace torchbridge::train
