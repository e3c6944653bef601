#include "bridge/program/program.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>

#include <CLI/CLI.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/nearest_name.h"
#include "bridge/program/pages.h"

namespace torchbridge {
namespace {

void add_option_names(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    const bool is_group = each->get_name().empty();
    if (is_group || each->parsed()) add_option_names(*each, names);
  }
}

// The options of `app` and of the subcommand that is given, without dashes.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  add_option_names(app, names);
  return names;
}

// "--Batch_size=8" is "batch-size".
std::string bare_name(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string name(word.substr(0, word.find('=')));
  std::ranges::replace(name, '_', '-');
  std::ranges::transform(name, name.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

// The option of ours that has this name, here or in other programs, or nothing.
std::string ours(const std::string& name, const std::vector<std::string>& names,
                 std::span<const OptionSuggestion> others) {
  if (std::ranges::find(names, name) != names.end()) return name;
  const auto other = std::ranges::find(others, name, &OptionSuggestion::theirs);
  return other == others.end() ? "" : std::string(other->ours);
}

// "GCC 12.2 for glibc 2.36". The program may run from an older glibc on: docs/use/install.md.
std::string compiler() {
#ifdef __clang__
  const std::string name = formatted("clang {}.{}", __clang_major__, __clang_minor__);
#else
  const std::string name = formatted("GCC {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
  return formatted("{} for glibc {}.{}", name, __GLIBC__, __GLIBC_MINOR__);
}

// "a", "a or b", "a, b or c".
std::string listed(const std::vector<std::string>& words, const std::string& last_separator) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? last_separator : ", ") + words[i];
  return text;
}

const CLI::App& given_command(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : *given.front();
}

bool lacks_subcommand(const CLI::App& app) {
  return app.get_require_subcommand_min() > 0 && app.get_subcommands().empty();
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each :
       app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); }))
    names.push_back(each->get_name());
  return names;
}

// "convert needs FROM and TO: torchbridge-ckpt convert FROM TO", or nothing if no required argument
// is missing.
std::string missing_arguments(const CLI::App& app) {
  const CLI::App& command = given_command(app);
  std::vector<std::string> names;
  std::string usage = app.get_name() + (&command == &app ? "" : " " + command.get_name());
  bool is_missing = false;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional() || !option->get_required()) continue;
    std::string name = option->get_name(/*positional=*/true);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char letter) { return std::toupper(letter); });
    is_missing = is_missing || option->empty();
    usage += " " + name;
    names.push_back(std::move(name));
  }
  if (!is_missing) return "";
  return formatted("{} needs {}: {}", command.get_name(), listed(names, " and "), usage);
}

// "--lr needs a value: a number", of CLI11's text "--lr: 1 required FLOAT missing", or nothing for
// another error.
std::string missing_value(const CLI::App& app, const CLI::ParseError& error) {
  if (!dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return "";
  const std::string text = error.what(), name = text.substr(0, text.find(':'));
  const CLI::Option* option = given_command(app).get_option_no_throw(name);
  if (option == nullptr || !option->empty() || option->get_type_size_min() == 0) return "";
  const std::string kind = value_text(*option);
  if (kind.empty() || kind == "TEXT") return formatted("{} needs a value", name);
  if (kind == "FLOAT") return formatted("{} needs a value: a number", name);
  if (kind == "INT") return formatted("{} needs a value: a whole number", name);
  return formatted("{} needs a value: {}{}", name,
                   kind.find('|') == std::string::npos ? "" : "one of ", kind);
}

// "  --batch-size INT          Samples a rank and step (default: 32)": an option is shown with the
// type of its values, or with the values themselves where they are few.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNameWidth); }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = value_text(*option);
    return option->get_type_size() == 0 || text.empty() ? "" : " " + text;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string value = option->get_type_size() == 0 ? "" : option->get_default_str();
    return wrapped(
        option->get_description() + (value.empty() ? "" : formatted(" (default: {})", value)),
        kWidth - kNameWidth);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::string name = "  " + command->get_name();
    name.resize(std::max(name.size() + 1, kNameWidth), ' ');
    const std::string text = wrapped(command->get_description(), kWidth - kNameWidth);
    return name + CLI::detail::find_and_replace(text, "\n", "\n" + std::string(kNameWidth, ' ')) +
           "\n";
  }
  std::string make_description(const CLI::App* app) const override {
    return app->get_description().empty() ? "" : wrapped(app->get_description(), kWidth) + "\n";
  }

 private:
  static constexpr std::size_t kWidth = 100, kNameWidth = 30;
};

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::string all;
  std::size_t column = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); column = 0) {
    if (!all.empty()) all += '\n';
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    all += line.substr(0, indent);
    column = indent;
    std::istringstream words(line);
    for (std::string word; words >> word; column += word.size()) {
      const bool is_first = column == indent;
      if (!is_first && column + 1 + word.size() > width) {
        all += '\n' + std::string(indent, ' ');
        column = indent;
      } else if (!is_first) {
        all += ' ';
        ++column;
      }
      all += word;
    }
  }
  return all;
}

std::optional<std::string> help_or_version(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::CallForHelp*>(&error)) return app.help();
  if (dynamic_cast<const CLI::CallForVersion*>(&error)) return error.what() + std::string("\n");
  return std::nullopt;
}

void set_up(CLI::App& app, const std::string& built_with) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "Print this help");
  const std::string libraries = (built_with.empty() ? "" : ", ") + built_with;
  app.set_version_flag("--version",
                       formatted("{} (torchbridge) " TORCHBRIDGE_VERSION ", built with {}{}",
                                 app.get_name(), compiler(), libraries),
                       "Print the version, and what it was built with");
}

std::string did_you_mean_option(std::string_view word, const std::vector<std::string>& names,
                                std::span<const OptionSuggestion> others,
                                const std::string& dashes) {
  const std::string name = bare_name(word),
                    // "lr" of "optimizer.lr", as programs with sections name it.
      last = name.substr(name.rfind('.') + 1);
  std::vector<std::string> all = names;
  for (const OptionSuggestion& other : others) all.emplace_back(other.theirs);
  for (const std::string& candidate :
       {name, last, nearest_name(name, all), nearest_name(last, all)}) {
    const std::string meant = ours(candidate, names, others);
    if (!meant.empty()) return formatted("; did you mean '{}{}'?", dashes, meant);
  }
  return "";
}

std::string command_line_error(const CLI::App& app, const CLI::ParseError& error,
                               std::span<const OptionSuggestion> others) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  // First, because the options of the subcommand are unknown too.
  const std::vector<std::string> commands = subcommands_of(app);
  if (lacks_subcommand(app) && !unknown.empty() && !unknown.front().starts_with("-"))
    return formatted("unknown subcommand '{}': expected {}{}", printable(unknown.front()),
                     listed(commands, " or "), did_you_mean(unknown.front(), commands));
  const auto option =
      std::ranges::find_if(unknown, [](const std::string& word) { return word.starts_with("-"); });
  if (option != unknown.end()) {
    return formatted("unknown option '{}'{}", printable(option->substr(0, option->find('='))),
                     did_you_mean_option(*option, option_names(app), others));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !unknown.empty())
    return formatted("unexpected argument '{}'", printable(unknown.front()));
  if (lacks_subcommand(app))
    return formatted("expected a subcommand: {}", listed(commands, " or "));
  if (const std::string text = missing_arguments(app);
      dynamic_cast<const CLI::RequiredError*>(&error) && !text.empty())
    return text;
  if (const std::string text = missing_value(app, error); !text.empty()) return text;
  std::string text = error.what();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace torchbridge
