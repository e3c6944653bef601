#include "bridge/supervision/stream_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include "bridge/base/message_text.h"
#include "bridge/base/write_all.h"

namespace torchbridge {
namespace {

constexpr std::size_t kChunk = 1 << 16;
constexpr std::size_t kLongestLine = 1 << 20;  // a longer one is printed in parts

std::string json_line(const LineStyle& style, std::string_view line) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  char time[32];
  std::snprintf(time, sizeof time, "%.3f", now.count());
  const nlohmann::json text = line;
  const std::string rank = style.rank < 0 ? "" : "\"rank\": " + std::to_string(style.rank) + ", ";
  return std::string("{\"time\": ") + time + ", " + rank + "\"stream\": \"" + style.stream +
         "\", \"line\": " + text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "}";
}

bool has_any(std::string_view line, const std::vector<std::string>& texts) {
  return std::ranges::any_of(texts, [&](const auto& text) { return line.find(text) != line.npos; });
}

}  // namespace

std::string styled(const LineStyle& style, std::string_view line) {
  return (style.format == LogFormat::kJson ? json_line(style, line)
                                           : style.prefix + std::string(line)) +
         "\n";
}

StreamRelay::StreamRelay(Socket source, Socket file, ConsoleWriter* console, LineStyle style,
                         LineFilter filter)
    : source_(std::move(source)),
      file_(std::move(file)),
      console_(console),
      style_(std::move(style)),
      filter_(std::move(filter)) {
  fcntl(source_.descriptor(), F_SETFL, fcntl(source_.descriptor(), F_GETFL) | O_NONBLOCK);
}

bool StreamRelay::carry() {
  char chunk[kChunk];
  const ssize_t count = read(source_.descriptor(), chunk, sizeof chunk);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) {  // a pseudo terminal ends with EIO
    if (!partial_.empty()) print_line(std::exchange(partial_, {}));
    source_ = Socket();
    return false;
  }
  const std::string_view text(chunk, static_cast<std::size_t>(count));
  write_file(text);
  if (console_ != nullptr || filter_.file >= 0) carry_lines(text);
  return true;
}

void StreamRelay::write_file(std::string_view text) {
  if (!file_.open()) return;
  const int error = write_all(file_.descriptor(), text);
  if (error == 0) return;
  print_without_waiting(
      formatted("torchbridge: the {} of rank {} is no longer written to its log: {}", style_.stream,
                style_.rank, std::strerror(error)));
  file_ = Socket();
}

void StreamRelay::carry_lines(std::string_view text) {
  while (!text.empty()) {
    const auto end = text.find_first_of("\n\r");
    if (end == text.npos) {
      partial_.append(text);
      if (partial_.size() > kLongestLine) print_line(std::exchange(partial_, {}));
      return;
    }
    const bool is_newline_of_return =
        text[end] == '\n' && end == 0 && partial_.empty() && has_returned_;
    has_returned_ = text[end] == '\r';
    if (!is_newline_of_return) {
      if (partial_.empty()) {
        print_line(text.substr(0, end));
      } else {
        partial_.append(text.substr(0, end));
        print_line(std::exchange(partial_, {}));
      }
    }
    text.remove_prefix(end + 1);
  }
}

void StreamRelay::print_line(std::string_view line) {
  const std::string printed = styled(style_, line);
  if (console_ != nullptr) console_->add(printed);
  if (filter_.file >= 0 && has_any(line, filter_.texts)) (void)write_all(filter_.file, printed);
}

}  // namespace torchbridge
