#include "trainer_template/runtime/base/console.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <mutex>

#include "bridge/worker/record.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

std::mutex mutex;  // of both streams
std::atomic<bool> drawn{false};
std::atomic<int> message_stream{STDOUT_FILENO};  // the stream on which the drawn line is ended before a message
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void end_line_on(int stream) {
  if (drawn.exchange(false)) [[maybe_unused]]
    const auto written = write(stream, "\n", 1);
}

// The stream that ends a drawn line. If both streams reach one terminal it is stderr: mpirun forwards the two streams
// in any order.
int stream_of_message() {
  const bool is_same = isatty(STDOUT_FILENO) && (isatty(STDERR_FILENO) || is_forwarded_to_terminal());
  return is_same ? STDERR_FILENO : STDOUT_FILENO;
}

}  // namespace

std::string program_name() { return program_invocation_short_name; }

void print_message(const std::string& text) {
  const std::scoped_lock lock(mutex);
  end_drawn_line_for_message();
  std::cerr << program_name() + ": " + text + "\n" << std::flush;
}

// First to the file: the launcher may end the ranks as soon as it reads the message.
void print_error(int rank, const std::string& text) {
  record_error(text);
  print_message("rank " + std::to_string(rank) + ": " + text);
}

bool is_forwarded_to_terminal() {
  if (!isatty(STDOUT_FILENO) || tcgetpgrp(STDOUT_FILENO) >= 0) return false;
  std::error_code error;
  const auto target = [&](const std::string& process) {
    return std::filesystem::read_symlink("/proc/" + process + "/fd/1", error).string();
  };
  const std::string parents = target(std::to_string(getppid()));
  return (parents.starts_with("/dev/pts/") || parents.starts_with("/dev/tty")) && parents != target("self");
}

void draw_line(const std::string& text) {
  const std::scoped_lock lock(mutex);
  std::printf("\r%s\x1b[K", text.c_str());
  std::fflush(stdout);
  static const int stream = stream_of_message();
  message_stream = stream;
  drawn = true;
}

void end_drawn_line() { end_line_on(STDOUT_FILENO); }

void end_drawn_line_for_message() { end_line_on(message_stream); }

void flush_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw TrainError("cannot write to stdout: is the disk full?");
}

}  // namespace torchbridge::train
