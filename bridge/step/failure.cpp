#include "bridge/step/failure.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "bridge/base/message_text.h"
#include "bridge/base/signal_names.h"
#include "bridge/base/visible_text.h"

namespace torchbridge {
namespace {

constexpr int kMaxLines = 64;
constexpr const char* kIndent = "\n    ";

std::string time_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  std::tm local{};
  localtime_r(&seconds, &local);
  char date[32], text[48];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
  std::snprintf(text, sizeof text, "%s.%03d", date, static_cast<int>(since_epoch.count() % 1000));
  return text;
}

std::string ending_of(const TaskFailure& failure) {
  if (!WIFSIGNALED(failure.wait_status))
    return formatted("exit code {}", WEXITSTATUS(failure.wait_status));
  const int signal = WTERMSIG(failure.wait_status);
  if (signal != SIGKILL || !failure.is_out_of_memory)
    return formatted("killed by {}", signal_text(signal));
  return formatted("killed by {}, out of memory: the kernel's OOM killer ended processes on {}",
                   signal_text(signal), failure.host);
}

// The character that a backslash and the letter `escape` mean in a JSON string; 0 for other
// letters.
char meaning_of(char escape) {
  switch (escape) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case '"':
      return '"';
    case '\\':
      return '\\';
    default:
      return 0;
  }
}

// One that visible_length does not show.
void append_escaped(std::string& text, char c) {
  char code[8];
  std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(c));
  text += c == '\t' ? "  " : code;
}

std::string indented(std::string_view reason) {
  std::string text = kIndent;
  int lines = 1;
  while (reason.ends_with('\n')) reason.remove_suffix(1);
  for (std::size_t i = 0; i < reason.size();) {
    char c = reason[i];
    const bool is_escape = c == '\\' && i + 1 < reason.size() && meaning_of(reason[i + 1]) != 0;
    if (is_escape) c = meaning_of(reason[i + 1]);
    const std::size_t shown = is_escape ? 0 : visible_length(reason.substr(i));
    i += is_escape ? 2 : std::max<std::size_t>(shown, 1);
    if (c != '\n') {
      if (shown > 0) {
        text += reason.substr(i - shown, shown);
      } else if (visible_length({&c, 1}) > 0) {
        text += c;
      } else {
        append_escaped(text, c);
      }
      continue;
    }
    if (++lines > kMaxLines) return text + kIndent + "...";
    text += kIndent;
  }
  return text;
}

}  // namespace

std::string describe(const TaskFailure& failure, const std::string& reason) {
  return formatted("rank {} on {}, at {} (local time of {}): {}{}", failure.rank, failure.host,
                   time_text(failure.time), failure.clock, ending_of(failure),
                   reason.empty() ? "" : indented(reason));
}

}  // namespace torchbridge
