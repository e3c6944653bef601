#include "bridge/supervision/worker_streams.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/supervision/worker_command.h"

namespace torchbridge {
namespace {

Result<Socket> open_file(const std::string& path) {
  Socket file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!file.open())
    return Error{formatted("cannot write to '{}': {}", printable(path), std::strerror(errno))};
  return file;
}

struct Channel {
  Socket source, sink;  // the agent reads the one, the worker writes to the other
};

Result<Channel> open_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Error{
        formatted("cannot open a pipe for the output of a worker: {}", std::strerror(errno))};
  }
  // Fewer switches between worker and agent; the kernel may give less.
  constexpr int kLarge = 1 << 20;
  (void)fcntl(ends[0], F_SETPIPE_SZ, kLarge);
  return Channel{Socket(ends[0]), Socket(ends[1])};
}

// Of the size of the agent's terminal; a newline stays one.
Result<Channel> open_pseudo_terminal(int like) {
  int source = -1, sink = -1;
  winsize size{};
  termios settings{};
  ioctl(like, TIOCGWINSZ, &size);
  if (tcgetattr(like, &settings) != 0) cfmakeraw(&settings);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  if (openpty(&source, &sink, nullptr, &settings, &size) != 0) return open_pipe();
  fcntl(source, F_SETFD, FD_CLOEXEC);
  fcntl(sink, F_SETFD, FD_CLOEXEC);
  return Channel{Socket(source), Socket(sink)};
}

const char* name_of(int stream) { return stream == kStdout ? "stdout" : "stderr"; }

// Six colours that are readable on dark and light terminals, by rank.
std::string coloured(const std::string& prefix, int rank) {
  constexpr int kFirst = 31, kColours = 6;
  return "\033[" + std::to_string(kFirst + rank % kColours) + "m" + prefix + "\033[0m";
}

}  // namespace

std::string line_prefix(const RunOptions& options, const std::string& host, int rank,
                        int local_rank) {
  if (options.log_line_prefix_template.empty())
    return "[" + options.role + std::to_string(local_rank) + "]:";
  std::string prefix = options.log_line_prefix_template;
  prefix = with_macro(std::move(prefix), "${role_name}", options.role);
  prefix = with_macro(std::move(prefix), "${rank}", std::to_string(rank));
  prefix = with_macro(std::move(prefix), "${local_rank}", std::to_string(local_rank));
  return with_macro(std::move(prefix), "${hostname}", host);
}

WorkerStreams::WorkerStreams(const RunOptions& options, const RunFolder& folder, Consoles& consoles,
                             LinePrefix prefix)
    : options_(options), folder_(folder), consoles_(consoles), prefix_(std::move(prefix)) {}

Status WorkerStreams::open_filters() {
  if (!folder_.exists()) return Ok{};
  if (!options_.duplicate_stdout_filters.empty() && !filtered_out_.open()) {
    auto file = open_file(folder_.attempt_file("filtered_stdout.log"));
    if (!file) return file.error();
    filtered_out_ = std::move(*file);
  }
  if (!options_.duplicate_stderr_filters.empty() && !filtered_err_.open()) {
    auto file = open_file(folder_.attempt_file("filtered_stderr.log"));
    if (!file) return file.error();
    filtered_err_ = std::move(*file);
  }
  return Ok{};
}

Result<Socket> WorkerStreams::open_stream(int stream, int local_rank, int rank) {
  const bool is_tee = (options_.tee.of(local_rank) & stream) != 0;
  const bool is_logged = is_tee || (options_.redirects.of(local_rank) & stream) != 0;
  const bool is_shown =
      !options_.local_ranks_filter || options_.local_ranks_filter->contains(local_rank);
  const bool is_printed =
      is_shown && (is_tee || (!is_logged && options_.log_format == LogFormat::kJson));
  const std::string path = std::string(name_of(stream)) + ".log";
  Result<Socket> file = Socket();
  if (is_logged && folder_.exists()) file = open_file(folder_.worker_file(local_rank, path));
  if (!file) return file.error();
  if (!is_printed) {
    if (is_logged && !folder_.exists()) return open_file("/dev/null");
    return is_logged || is_shown ? std::move(file) : open_file("/dev/null");
  }
  ConsoleWriter& console = stream == kStdout ? consoles_.out : consoles_.err;
  auto channel = console.is_terminal() ? open_pseudo_terminal(stream) : open_pipe();
  if (!channel) return channel.error();
  const std::string prefix = line_prefix(options_, prefix_.host, rank, local_rank);
  const bool has_colour = prefix_.has_colour && console.is_terminal();
  const LineStyle style{options_.log_format, has_colour ? coloured(prefix, rank) : prefix, rank,
                        name_of(stream)};
  const LineFilter filter =
      stream == kStdout ? LineFilter{options_.duplicate_stdout_filters, filtered_out_.descriptor()}
                        : LineFilter{options_.duplicate_stderr_filters, filtered_err_.descriptor()};
  relays_.push_back(std::make_unique<StreamRelay>(std::move(channel->source), std::move(*file),
                                                  &console, style, filter));
  return std::move(channel->sink);
}

Result<WorkerOutput> WorkerStreams::open(int local_rank, int rank) {
  if (const auto opened = open_filters(); !opened) return opened.error();
  WorkerOutput output;
  auto out = open_stream(kStdout, local_rank, rank);
  if (!out) return out.error();
  output.out = std::move(*out);
  auto err = open_stream(kStderr, local_rank, rank);
  if (!err) return err.error();
  output.err = std::move(*err);
  return output;
}

void WorkerStreams::drop_ended() {
  std::erase_if(relays_, [](const auto& relay) { return relay->source() < 0; });
}

void WorkerStreams::carry_rest() {
  constexpr int kReads = 64;  // more than a pipe holds
  for (const auto& relay : relays_) {
    for (int i = 0; i < kReads; ++i) {
      pollfd entry{relay->source(), POLLIN, 0};
      if (poll(&entry, 1, 0) <= 0 || !relay->carry()) break;
      consoles_.out.flush();
      consoles_.err.flush();
    }
  }
  drop_ended();
}

}  // namespace torchbridge
