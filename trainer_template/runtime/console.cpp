#include <torchbridge/train/console.h>

#include <torchbridge/train/errors.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <mutex>

namespace torchbridge::train {
namespace {

std::mutex mutex;  // of both streams
std::atomic<bool> drawn{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void say(const std::string& text) {
  const std::scoped_lock lock(mutex);
  end_drawn_line();
  std::cerr << "trainer: " + text + "\n" << std::flush;
}

void draw_line(const std::string& text) {
  const std::scoped_lock lock(mutex);
  std::printf("\r%s\x1b[K", text.c_str());
  std::fflush(stdout);
  drawn = true;
}

void end_drawn_line() {
  if (drawn.exchange(false)) [[maybe_unused]] const auto written = write(STDOUT_FILENO, "\n", 1);
}

void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw TrainError("cannot write to stdout: is the disk full?");
}

}  // namespace torchbridge::train
