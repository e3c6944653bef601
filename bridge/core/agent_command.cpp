#include "bridge/core/agent_command.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

struct Word {
  std::string text;
  bool begins = false;  // a command: of the program, or of the text that a shell runs
};

// The words of the command line, or of the text that a shell runs, without quotes and folders:
// `--nnodes="1"` gives --nnodes and 1.
std::vector<Word> words_of(const std::vector<std::string>& program) {
  constexpr std::string_view kBetween = " \t\n=;&|()<>`\\", kCommands = "\n;&|(`";
  std::vector<Word> words;
  for (const auto& argument : program) {
    Word word{.begins = words.empty() || argument.find(' ') != argument.npos};
    for (const char c : argument + " ") {
      if (c == '"' || c == '\'') continue;
      if (c == '/') {
        word.text.clear();
      } else if (kBetween.find(c) == kBetween.npos) {
        word.text += c == '_' ? '-' : c;
      } else {
        const bool has_ended = !word.text.empty();
        const bool begins = kCommands.find(c) != kCommands.npos || (!has_ended && word.begins);
        if (has_ended) words.push_back(std::move(word));
        word = {.begins = begins};
      }
    }
  }
  return words;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, word) != names.end();
}

// Where torchrun is among the words; their number where it is not. Behind another word, as in
// `uv run torchrun`, it has a script or options behind it, or a variable of the shell that may hold
// them: `--checkpoint-dir runs/torchrun` has not.
std::size_t find_torchrun(const std::vector<Word>& words) {
  const auto is_behind_torchrun = [](const Word& word) {
    const std::string& text = word.text;
    return text.starts_with("$") || text.ends_with(".py") || text.starts_with("--rdzv-") ||
           text.starts_with("--nproc") ||
           is_one_of(text, {"-m", "--module", "--no-python", "--nnodes", "--node-rank",
                            "--standalone", "--master-addr", "--master-port"});
  };
  for (std::size_t at = 0; at < words.size(); ++at) {
    const auto& [text, begins] = words[at];
    std::string_view name = text;
    if (name.starts_with("-mtorch.")) name.remove_prefix(2);
    if (is_one_of(name, {"torch.distributed.run", "torch.distributed.launch"})) return at;
    const bool is_command = begins || (at > 0 && words[at - 1].text == "exec");
    if (name == "torchrun" &&
        (is_command || std::any_of(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end(),
                                   is_behind_torchrun)))
      return at;
  }
  return words.size();
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
  const auto words = words_of(program);
  if (find_torchrun(words) < words.size()) return true;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1].text == "torchbridge" && is_one_of(words[i].text, {"run", "launch"}))
      return true;
  }
  return false;
}

bool is_torchrun_of_nodes(const std::vector<std::string>& program) {
  const auto words = words_of(program);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    const std::string before = i == 0 ? "" : words[i - 1].text;
    const bool is_here =
        word.starts_with("localhost") || word.starts_with("127.") || word.starts_with("[::1]");
    if (word == "--standalone") return false;
    if (before == "--nnodes" && (word == "1" || word == "1:1")) return false;
    if (before == "--rdzv-endpoint" && is_here) return false;
  }
  return find_torchrun(words) < words.size();
}

bool torchrun_has(const std::vector<std::string>& program,
                  std::initializer_list<std::string_view> options) {
  const auto words = words_of(program);
  for (std::size_t at = find_torchrun(words); at < words.size(); ++at) {
    const std::string& word = words[at].text;
    if (word.ends_with(".py")) return false;  // what follows is the script's
    if (is_one_of(word, options)) return true;
  }
  return false;
}

}  // namespace torchbridge
