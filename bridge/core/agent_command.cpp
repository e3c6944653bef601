#include "bridge/core/agent_command.h"

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

// The words of the command line, or of the text that a shell runs, without quotes and folders:
// `--nnodes="1"` gives --nnodes and 1.
std::vector<std::string> words_of(const std::vector<std::string>& program) {
  constexpr std::string_view kBetween = " \t\n=;&|()<>`\\/";
  std::vector<std::string> words(1);
  for (const auto& argument : program) {
    for (const char c : argument + " ") {
      if (c == '"' || c == '\'') continue;
      if (kBetween.find(c) == kBetween.npos)
        words.back() += c == '_' ? '-' : c;
      else if (c == '/')
        words.back().clear();
      else if (!words.back().empty())
        words.emplace_back();
    }
  }
  return words;
}

bool is_torchrun(std::string_view word) {
  constexpr std::string_view kNames[] = {"torchrun", "torch.distributed.run",
                                         "torch.distributed.launch"};
  if (word.starts_with("-mtorch.")) word.remove_prefix(2);
  return std::find(std::begin(kNames), std::end(kNames), word) != std::end(kNames);
}

}  // namespace

Result<std::string> checked_token(const std::string& source, std::string_view token) {
  token = trimmed(token, " \t\r\n");
  if (token.size() >= kShortestToken && token.size() <= kLongestToken) return std::string(token);
  return Error{formatted(
      "{}: the token has {} characters: expected {} to {}, as openssl rand -hex 16 prints", source,
      token.size(), kShortestToken, kLongestToken)};
}

bool is_agent(const std::vector<std::string>& program) {
  std::string before;
  for (std::string& word : words_of(program)) {
    if (is_torchrun(word)) return true;
    if (before == "torchbridge" && (word == "run" || word == "launch")) return true;
    before = std::move(word);
  }
  return false;
}

bool is_torchrun_of_nodes(const std::vector<std::string>& program) {
  bool starts_torchrun = false;
  std::string before;
  for (std::string& word : words_of(program)) {
    if (is_torchrun(word)) starts_torchrun = true;
    const bool is_here =
        word.starts_with("localhost") || word.starts_with("127.") || word.starts_with("[::1]");
    if (word == "--standalone") return false;
    if (before == "--nnodes" && (word == "1" || word == "1:1")) return false;
    if (before == "--rdzv-endpoint" && is_here) return false;
    before = std::move(word);
  }
  return starts_torchrun;
}

}  // namespace torchbridge
