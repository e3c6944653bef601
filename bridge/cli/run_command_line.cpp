#include "bridge/cli/run_command_line.h"

#include <algorithm>
#include <climits>
#include <map>
#include <optional>

#include "bridge/base/message_text.h"
#include "bridge/base/nearest_name.h"
#include "bridge/cli/command_line_end.h"
#include "bridge/cli/run_option_pages.h"
#include "bridge/cli/run_option_table.h"
#include "bridge/cli/run_option_values.h"
#include "bridge/program/program.h"

namespace torchbridge {
namespace {

constexpr std::string_view kHelp = "help";

// What other launchers call the same.
constexpr OptionSuggestion kElsewhere[] = {
    {"np", "nproc-per-node"},
    {"num-processes", "nproc-per-node"},
    {"num-gpus", "nproc-per-node"},
    {"num-machines", "nnodes"},
    {"num-nodes", "nnodes"},
    {"machine-rank", "node-rank"},
    {"main-process-ip", "master-addr"},
    {"main-process-port", "master-port"},
};

[[noreturn]] void wrong(const std::string& text) {
  throw CommandLineEnd{kBadUsage, formatted("{} (see torchbridge run --help)", text)};
}

std::string dashed(const RunOption& option) { return "--" + std::string(option.name); }

[[noreturn]] void unknown_option(const std::string& word) {
  std::vector<std::string> names = {std::string(kHelp)};
  for (const RunOption& option : run_options()) names.emplace_back(option.name);
  wrong(formatted("unknown option '{}'{}", printable(word.substr(0, word.find('='))),
                  did_you_mean_option(word, names, kElsewhere)));
}

// The option that `word`, "--log_dir" or "--log-d", names or abbreviates; none for --help. What
// torchrun takes for an abbreviation of one of its options is no abbreviation of ours.
const RunOption* long_option(const std::string& word) {
  std::string name = word.substr(2);
  std::ranges::replace(name, '_', '-');
  std::vector<const RunOption*> found, ours;
  for (const RunOption& option : run_options()) {
    if (option.name == name) return &option;
    if (option.name.starts_with(name))
      (option.origin == OptionOrigin::kOurs ? ours : found).push_back(&option);
  }
  if (found.empty() && kHelp.starts_with(name)) return nullptr;
  if (found.empty()) found = ours;
  if (found.empty() || name.empty()) unknown_option(word);
  if (found.size() == 1) return found.front();
  std::vector<std::string> names;
  for (const RunOption* option : found) names.push_back(dashed(*option));
  wrong(formatted("option '{}' is ambiguous: {}", printable(word), joined(names, ", ")));
}

bool is_negative_number(const std::string& word) {
  return word.size() > 1 && word.find_first_not_of("0123456789.", 1) == word.npos;
}

// The options of a command line with their values, and what follows them.
class RunLine {
 public:
  explicit RunLine(const std::vector<std::string>& arguments) : arguments_(arguments) {
    while (next_ < arguments.size() && arguments[next_].size() > 1 &&
           arguments[next_].front() == '-') {
      const std::string& word = arguments[next_++];
      if (word == "--") break;
      word.starts_with("--") ? take_long(word) : take_letters(word);
    }
  }

  std::vector<std::string> program() const {
    return {arguments_.begin() + static_cast<std::ptrdiff_t>(next_), arguments_.end()};
  }
  std::optional<std::string> value(const RunOption& option) const {
    const auto at = values_.find(&option);
    return at == values_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  void take_long(const std::string& word) {
    const auto equals = word.find('=');
    const RunOption* option = long_option(word.substr(0, equals));
    const std::string value = equals == word.npos ? "" : word.substr(equals + 1);
    if (!option) print(value);
    if (!option->is_flag()) {
      values_[option] = equals == word.npos ? next_value(*option) : value;
    } else if (equals == word.npos) {
      values_[option] = "1";
    } else {
      wrong(formatted("{} takes no value", dashed(*option)));
    }
  }

  // "-m", "-r3", "-r=3", "-mr3".
  void take_letters(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      if (word[i] == 'h') print("");
      const auto option = std::ranges::find(run_options(), word[i], &RunOption::letter);
      if (option == run_options().end()) unknown_option(word);
      values_[&*option] = "1";
      if (option->is_flag()) continue;
      const std::string rest = word.substr(i + 1);
      values_[&*option] =
          rest.empty() ? next_value(*option) : rest.substr(rest.front() == '=' ? 1 : 0);
      return;
    }
  }

  // The next word, unless it looks like an option.
  std::string next_value(const RunOption& option) {
    if (next_ == arguments_.size()) wrong(formatted("{} needs a value", dashed(option)));
    const std::string& word = arguments_[next_];
    const bool is_value = word.size() < 2 || word.front() != '-' || is_negative_number(word) ||
                          word.find(' ') != word.npos;
    if (!is_value)
      wrong(formatted("{} needs a value; one that begins with a dash is written {}=-VALUE",
                      dashed(option), dashed(option)));
    ++next_;
    return word;
  }

  [[noreturn]] static void print(const std::string& format) {
    if (const auto page = run_option_page(format)) throw CommandLineEnd{0, *page};
    wrong(formatted("--help: '{}': expected one of {}", printable(format),
                    joined(run_option_page_formats(), ", ")));
  }

  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;
  std::map<const RunOption*, std::string> values_;
};

// Text and origin of a value: the option, or the variable that has it. An empty one is not set.
struct SourcedValue {
  std::string text, source;
};

std::optional<SourcedValue> value_of(const RunOption& option, const RunLine& line,
                                     const EnvMap& environment) {
  if (const auto value = line.value(option)) return SourcedValue{*value, dashed(option)};
  for (const std::string_view name : {option.variable, option.other_variable}) {
    const auto value = name.empty() ? std::nullopt : environment.get(name);
    if (value && !value->empty()) return SourcedValue{std::string(*value), std::string(name)};
  }
  if (option.default_text.empty()) return std::nullopt;
  return SourcedValue{std::string(option.default_text), dashed(option)};
}

void store(RunOptions& options, const RunOption& option, const SourcedValue& value) {
  if (option.is_flag()) {
    const auto number = parse_whole_number(value.text, INT_MIN, INT_MAX);
    if (!number) wrong(formatted("{}: '{}': expected 0 or 1", value.source, printable(value.text)));
    if (*number == 0) return;
  }
  const auto names = named_values(option);
  if (takes_named_values_only(option) && std::ranges::count(names, value.text) == 0)
    wrong(formatted("{}: '{}': expected one of {}{}", value.source, printable(value.text),
                    joined(names, ", "), did_you_mean(value.text, names)));
  const Status status = option.store(options, value.text);
  if (!status) wrong(value.source + ": " + status.error().message);
}

}  // namespace

RunOptions parse_run_options(const std::vector<std::string>& arguments, const EnvMap& environment,
                             RunStyle style) {
  const RunLine line(arguments);
  RunOptions options;
  options.passes_local_rank = style == RunStyle::kTorchLaunch;
  for (const RunOption& option : run_options()) {
    if (const auto value = value_of(option, line, environment)) store(options, option, *value);
  }
  options.program = line.program();
  if (options.program.empty() && options.print_completion.empty())
    wrong("expected a program after the options: torchbridge run [OPTIONS] PROGRAM [ARGUMENTS]");
  return options;
}

}  // namespace torchbridge
