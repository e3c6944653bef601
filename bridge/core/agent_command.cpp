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
  bool begins = false;     // a command: of the program, or of the text that a shell runs
  bool continues = false;  // the word before it
  int depth = 0;           // of texts, parentheses and backticks
};

// The words of the command line, or of the text that a shell runs, without quotes and folders:
// `--nnodes="1"` gives --nnodes and 1.
std::vector<Word> words_of(const std::vector<std::string>& program) {
  constexpr std::string_view kBetween = " \t\n=;&|()<>`\\", kCommands = "\n;&|(`";
  std::vector<Word> words;
  for (const auto& argument : program) {
    const bool is_text = argument.find(' ') != argument.npos;
    Word word{.begins = words.empty() || is_text, .depth = is_text};
    bool is_quoted = false;  // by backticks
    char before = ' ';
    for (const char c : argument + " ") {
      if (c == '"' || c == '\'') continue;
      if (c == '/') {
        word.text.clear();
      } else if (kBetween.find(c) == kBetween.npos) {
        word.text += c == '_' ? '-' : c;
      } else {
        Word next{.begins = kCommands.find(c) != kCommands.npos && before != '\\',
                  .continues = c == '=' || c == ')' || (c == '`' && is_quoted),
                  .depth = word.depth};
        if (c == '`') is_quoted = !is_quoted;
        if (c == '(' || (c == '`' && is_quoted)) ++next.depth;
        if (c == ')' || (c == '`' && !is_quoted)) --next.depth;
        if (word.text.empty()) {
          next.begins |= word.begins;
        } else {
          words.push_back(std::move(word));
        }
        word = std::move(next);
      }
      before = c;
    }
  }
  return words;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, word) != names.end();
}

// Whether the word is torchrun. Behind another word, as in `uv run torchrun`, it has a script or
// options behind it, or a variable of the shell that may hold them: `--checkpoint-dir
// runs/torchrun` has not.
bool is_torchrun(const std::vector<Word>& words, std::size_t at) {
  const auto& [text, begins, continues, depth] = words[at];
  std::string_view name = text;
  if (name.starts_with("-mtorch.")) name.remove_prefix(2);
  if (is_one_of(name, {"torch.distributed.run", "torch.distributed.launch"})) return true;
  if (name != "torchrun") return false;
  if (begins || (at > 0 && words[at - 1].text == "exec")) return true;
  for (++at; at < words.size() && !(words[at].begins && words[at].depth <= depth); ++at) {
    const std::string& behind = words[at].text;
    if (behind.starts_with("$") || behind.ends_with(".py") || behind.starts_with("--rdzv-") ||
        behind.starts_with("--nproc") ||
        is_one_of(behind, {"-m", "--module", "--no-python", "--nnodes", "--node-rank",
                           "--standalone", "--master-addr", "--master-port"}))
      return true;
  }
  return false;
}

bool takes_value(const std::string& option) {
  if (!option.starts_with("--")) return option.size() == 2 && option != "-m";  // -r3 has its own
  return !is_one_of(option, {"--", "--standalone", "--module", "--no-python", "--run-path",
                             "--virtual-local-rank", "--use-env"});
}

// The options of the torchrun at this word, up to its script or the end of the command. A variable
// of the shell may hold options, or the script where no other word is one.
EnvMap options_of(const std::vector<Word>& words, const std::size_t torchrun, std::size_t end) {
  EnvMap options;
  std::size_t variable = 0;
  int depth = words[torchrun].depth;
  for (std::size_t at = torchrun + 1; at < end; ++at) {
    const auto& [text, begins, continues, own_depth] = words[at];
    if (own_depth > depth || continues) continue;
    if (begins) break;
    depth = own_depth;   // `$(which torchrun) --nnodes 2`
    if (text == "$@") {  // the arguments behind the text and the $0 of `sh -c`
      while (at + 1 < end && words[at].depth > 0) ++at;
      depth = 0;
    } else if (text[0] == '$') {
      variable = at;
    } else if (text[0] != '-') {
      return options;
    } else {
      const bool has_value = takes_value(text) && at + 1 < end;
      options.set(text, has_value ? words[++at].text : "");
    }
  }
  return variable == 0 ? options : options_of(words, torchrun, variable);
}

bool waits_for_nodes(const EnvMap& options) {
  const std::string_view nodes = options.get("--nnodes").value_or("");
  const std::string_view endpoint = options.get("--rdzv-endpoint").value_or("");
  return !options.has("--standalone") && nodes != "1" && nodes != "1:1" &&
         !endpoint.starts_with("localhost") && !endpoint.starts_with("127.") &&
         !endpoint.starts_with("[::1]");
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
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_torchrun(words, i) || (i > 0 && words[i - 1].text == "torchbridge" &&
                                  is_one_of(words[i].text, {"run", "launch"})))
      return true;
  }
  return false;
}

Torchruns torchruns_in(const std::vector<std::string>& program) {
  const auto words = words_of(program);
  Torchruns found;
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (!is_torchrun(words, at)) continue;
    EnvMap options = options_of(words, at, words.size());
    if (waits_for_nodes(options)) {
      found.of_nodes.push_back(std::move(options));
    } else if (!options.has("--standalone") || !options.has("--nnodes")) {
      found.has_one_alone = true;
    }
  }
  return found;
}

}  // namespace torchbridge
