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

std::string indented(std::string_view reason) {
  std::string text = kIndent;
  int lines = 1;
  while (reason.ends_with('\n')) reason.remove_suffix(1);
  while (!reason.empty()) {
    // A backslash and a letter may stand for a character, as in a JSON string.
    constexpr std::string_view kLetters = "nt\"\\", kMeanings = "\n\t\"\\";
    const auto letter =
        reason.starts_with('\\') && reason.size() > 1 ? kLetters.find(reason[1]) : reason.npos;
    const bool is_escape = letter != reason.npos;
    const auto character = is_escape
                               ? kMeanings.substr(letter, 1)
                               : reason.substr(0, std::max<std::size_t>(visible_length(reason), 1));
    reason.remove_prefix(is_escape ? 2 : character.size());
    if (character == "\n" && ++lines > kMaxLines) return text + kIndent + "...";
    text += character == "\n" ? kIndent : character == "\t" ? "  " : visible_line(character);
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
