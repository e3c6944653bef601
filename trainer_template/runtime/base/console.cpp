#include "trainer_template/runtime/base/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <string_view>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "bridge/net/socket.h"
#include "bridge/worker/record.h"

namespace torchbridge::train {
namespace {

std::mutex mutex;  // of both streams
std::atomic<bool> drawn{false};
std::atomic<int> line_stream{STDOUT_FILENO};  // on which the progress line is drawn
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

constexpr std::string_view kEraseLine = "\r\x1b[K";

void write_to(int stream, std::string_view text) {
  [[maybe_unused]] const auto written = write(stream, text.data(), text.size());
}

std::string target_of(const std::string& process, int stream) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/" + process + "/fd/" + std::to_string(stream),
                                       ignored)
      .string();
}

bool is_terminal_path(const std::string& path) {
  return path.starts_with("/dev/pts/") || path.starts_with("/dev/tty");
}

// mpirun forwards the two streams of a rank in any order. A message begins a line of its own only
// if the progress line is drawn on its stream.
int stream_of_line() {
  struct stat status {};
  const bool is_piped =
      fstat(STDERR_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
  const std::string parent = std::to_string(getppid());
  const bool is_same = is_piped && is_forwarded_to_terminal() &&
                       target_of(parent, STDERR_FILENO) == target_of(parent, STDOUT_FILENO);
  return is_same ? STDERR_FILENO : STDOUT_FILENO;
}

// The width of the open terminal, or 0.
int columns_of(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
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
  print_message(formatted("rank {}: {}", rank, text));
}

bool is_forwarded_to_terminal() {
  if (!isatty(STDOUT_FILENO) || tcgetpgrp(STDOUT_FILENO) >= 0) return false;
  const std::string parents = target_of(std::to_string(getppid()), STDOUT_FILENO);
  return is_terminal_path(parents) && parents != target_of("self", STDOUT_FILENO);
}

int terminal_columns() {
  constexpr int kUsual = 80;
  if (const int own = columns_of(STDOUT_FILENO); own > 0) return own;
  const std::string parents = "/proc/" + std::to_string(getppid()) + "/fd/1";
  const Socket forwarded(is_forwarded_to_terminal()
                             ? open(parents.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
                             : -1);
  const int of_parent = forwarded.open() ? columns_of(forwarded.descriptor()) : 0;
  return of_parent > 0 ? of_parent : kUsual;
}

void draw_line(const std::string& text) {
  const std::scoped_lock lock(mutex);
  static const int stream = stream_of_line();
  line_stream = stream;
  std::fflush(stdout);
  write_to(stream, "\r" + text + "\x1b[K");
  drawn = true;
}

void end_drawn_line() {
  if (!drawn.exchange(false)) return;
  if (line_stream == STDOUT_FILENO) return write_to(STDOUT_FILENO, "\n");
  // The line is erased by whichever stream arrives first.
  for (const int stream : {STDERR_FILENO, STDOUT_FILENO}) write_to(stream, kEraseLine);
}

void end_drawn_line_for_message() {
  if (drawn.exchange(false)) write_to(line_stream, "\n");
}

void flush_stdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  const bool is_unread = poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
  throw TrainError(is_unread ? "cannot write to stdout: nobody reads it any more"
                             : "cannot write to stdout: is the disk full?");
}

}  // namespace torchbridge::train
