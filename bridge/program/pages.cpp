#include "bridge/program/pages.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <vector>

#include <CLI/CLI.hpp>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

using CLI::detail::find_and_replace;

struct OptionLine {
  std::string group, letter, name, values, help, text_default, variable;
  bool takes_value() const { return !values.empty(); }
  std::string words() const {  // the values that are literal
    auto found = split_at(values, '|');
    std::erase_if(found, [](std::string_view word) {
      return word.empty() ||
             std::ranges::any_of(word, [](unsigned char c) { return std::isupper(c); });
    });
    return joined(found, " ");
  }
  bool takes_file() const {
    return words().empty() &&
           std::ranges::any_of(
               std::initializer_list<std::string_view>{"TEXT", "FILE", "DIR", "PATH"},
               [this](std::string_view kind) { return values.find(kind) != values.npos; });
  }
  // What a shell offers as the value: the words in brackets, or what stands for files or nothing.
  std::string completion(const char* files, const char* nothing) const {
    return !words().empty() ? "(" + words() + ")" : takes_file() ? files : nothing;
  }
};

void add_options(const CLI::App& app, std::vector<OptionLine>& lines) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_group().empty()) continue;
    const auto letters = option->get_snames();
    const bool is_flag = option->get_type_size() == 0;
    lines.push_back({option->get_group(), letters.empty() ? "" : "-" + letters.front(),
                     "--" + option->get_lnames().front(), is_flag ? "" : value_text(*option),
                     option->get_description(), is_flag ? "" : option->get_default_str(),
                     option->get_envname()});
  }
  for (const CLI::App* each :
       app.get_subcommands([](const CLI::App* a) { return a->get_name().empty(); }))
    add_options(*each, lines);
}

std::vector<OptionLine> options_of(const CLI::App& app) {
  std::vector<OptionLine> lines;
  add_options(app, lines);
  return lines;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* each) { return !each->get_name().empty(); });
}

// Text of roff, where a dash is a minus, so that it can be searched and copied.
std::string roff(std::string_view text) {
  std::string all;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string line(take_until(rest, '\n'));
    const bool is_request = line.starts_with(".") || line.starts_with("'");
    all += std::string(all.empty() ? "" : "\n.br\n") + (is_request ? "\\&" : "") +
           find_and_replace(find_and_replace(line, "\\", "\\e"), "-", "\\-");
  }
  return all;
}

std::string man_options(const CLI::App& app, bool has_groups) {
  std::string page, group;
  for (const OptionLine& line : options_of(app)) {
    if (has_groups && line.group != group) page += ".SS \"" + roff(line.group) + "\"\n";
    group = line.group;
    const std::string names = (line.letter.empty() ? "" : line.letter + ", ") + line.name;
    const auto value =
        line.text_default.empty() ? "" : " (default: " + roff(line.text_default) + ")";
    page += ".TP\n.B " + roff(names + (line.values.empty() ? "" : " " + line.values)) + "\n" +
            roff(line.help) + value + ".\n";
    if (!line.variable.empty()) page += ".br\nVariable: " + roff(line.variable) + "\n";
  }
  return page;
}

std::string positionals(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    std::string name = option->get_name(/*positional=*/true);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char letter) { return std::toupper(letter); });
    text += option->get_required() ? " " + name : " [" + name + "]";
  }
  return text;
}

std::string man_page(const CLI::App& app) {
  const std::string name = find_and_replace(app.get_name(), " ", "-");
  std::string title = name;
  std::ranges::transform(title, title.begin(),
                         [](unsigned char letter) { return std::toupper(letter); });
  const std::string first =
      app.get_description().substr(0, app.get_description().find_first_of(".\n"));
  std::string page =
      ".TH " + roff(title) +
      " 1 \"\" \"torchbridge " TORCHBRIDGE_VERSION "\" \"User Commands\"\n.SH NAME\n" + roff(name) +
      " \\- " + roff(first) + "\n.SH SYNOPSIS\n.B " + roff(app.get_name()) + "\n";
  const auto commands = commands_of(app);
  page += commands.empty() ? "[\\fIOPTIONS\\fR]" + roff(positionals(app)) + "\n"
                           : "\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
  page += ".SH DESCRIPTION\n" + roff(app.get_description()) + "\n";
  if (!app.get_footer().empty()) page += ".PP\n" + roff(app.get_footer()) + "\n";
  page += ".SH OPTIONS\n" + man_options(app, commands.empty());
  if (!commands.empty()) page += ".SH COMMANDS\n";
  for (const CLI::App* each : commands) {
    page += ".SS \"" + roff(app.get_name() + " " + each->get_name() + positionals(*each)) + "\"\n" +
            roff(each->get_description()) + ".\n" + man_options(*each, false);
  }
  return page + ".SH SEE ALSO\n" + roff(app.get_name()) + " \\-\\-help\n";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// %COMMANDS%: the words that are commands; %VALUED%: "command --option" for those with a value;
// %ENDS%: where a program begins; %OPTIONS% and %VALUES%: cases of "command" and "command
// --option"; %CONDITION%: whether options are offered.
constexpr const char* kBash = R"(# bash completion for %NAME%, printed by %NAME% --help=bash
%FUNCTION%() {
  local words word option= command= i
  COMPREPLY=()
  read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
  [[ ${COMP_LINE:0:COMP_POINT} != *[[:space:]] ]] || words+=('')
  word=${words[-1]}
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    if [[ $option ]]; then option=; continue; fi
    case "$command ${words[i]//_/-}" in
      %COMMANDS%) command=${words[i]} ;;
      %VALUED%) option=${words[i]//_/-} ;;
      %ENDS%) compopt -o default; return ;;
    esac
  done
  if [[ ! $option && $word == --*=* ]]; then
    option=${word%%=*} option=${option//_/-} word=${word#*=}
  fi
  case "$command $option" in
%VALUES%    *' ') ;;
    *) return ;;
  esac
  [[ ! $option ]] || return
  local choices=
  case "$command" in
%OPTIONS%  esac
  if [[ %CONDITION% ]]; then
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
  else
    compopt -o default
  fi
}
complete -F %FUNCTION% %NAME%
)";

std::string name_of(const CLI::App* app) { return app->get_name(); }

std::string bash(const CLI::App& app) {
  const auto commands = commands_of(app);
  std::vector<std::string> valued, ends;
  std::string options, values;
  const auto add_command = [&](const CLI::App& each, const std::string& name, std::string choices) {
    for (const OptionLine& line : options_of(each)) {
      choices += (choices.empty() ? "" : " ") + line.name;
      if (!line.takes_value()) continue;
      std::string pattern = shell_word(name + " " + line.name);
      if (!line.letter.empty()) pattern += "|" + shell_word(name + " " + line.letter);
      valued.push_back(pattern);
      if (const std::string words = line.words(); !words.empty())
        values +=
            "    " + pattern + ") COMPREPLY=($(compgen -W '" + words + "' -- \"$word\")) ;;\n";
      if (line.takes_file()) values += "    " + pattern + ") compopt -o default ;;\n";
    }
    if (each.get_positionals_at_end()) ends.push_back("'" + name + " '[!-]*");
    ends.push_back("'" + name + " --'");
    options += "    " + shell_word(name) + ") choices='" + choices + "' ;;\n";
  };
  add_command(app, "", joined(commands, " ", name_of));
  for (const CLI::App* each : commands) add_command(*each, each->get_name(), "");
  const std::string command_words = joined(
      commands, "|", [](const CLI::App* each) { return shell_word(" " + each->get_name()); });
  const std::pair<std::string, std::string> fillings[] = {
      {"%NAME%", app.get_name()},
      {"%FUNCTION%", "_" + find_and_replace(app.get_name(), "-", "_")},
      {"%COMMANDS%", commands.empty() ? "/" : command_words},
      {"%VALUED%", valued.empty() ? "/" : joined(valued, "|")},
      {"%ENDS%", joined(ends, "|")},
      {"%VALUES%", values},
      {"%OPTIONS%", options},
      {"%CONDITION%", commands.empty() ? "$word == -*" : "$word == -* || ! $command"}};
  std::string page = kBash;
  for (const auto& [place, text] : fillings) page = find_and_replace(page, place, text);
  return page;
}

// Text of an argument of zsh.
std::string escaped(std::string_view text) {
  std::string all;
  for (const char each : text) {
    if (std::string_view("[]:\\").find(each) != std::string_view::npos) all += '\\';
    all += each;
  }
  return all;
}

// An argument of zsh's _arguments: '--name=[text]:values:(a b)'.
std::string zsh_arguments(const CLI::App& app, bool has_program) {
  std::string lines;
  for (const OptionLine& line : options_of(app)) {
    const std::string text = "[" + escaped(first_line(line.help)) + "]";
    const std::string value =
        line.takes_value() ? ":" + escaped(line.values) + ":" + line.completion("_files", " ") : "";
    lines += " \\\n      " + shell_word(line.name + (line.takes_value() ? "=" : "") + text + value);
    if (!line.letter.empty())
      lines +=
          " \\\n      " + shell_word(line.letter + (line.takes_value() ? "+" : "") + text + value);
  }
  const std::string rest = has_program ? "'*::program: _normal'" : "'*:file:_files'";
  return "    _arguments -s -S" + lines + " \\\n      " + rest;
}

std::string zsh(const CLI::App& app) {
  const std::string name = app.get_name();
  std::string function = "_" + name;
  std::string page = "#compdef " + name + "\n# zsh completion for " + name + ", printed by " +
                     name + " --help=zsh\n" + function + "() {\n";
  const auto commands = commands_of(app);
  if (commands.empty()) return page + zsh_arguments(app, false) + "\n}\n" + function + " \"$@\"\n";
  page += "  if (( CURRENT == 2 )); then\n    local -a commands=(";
  for (const CLI::App* each : commands)
    page += "\n      " + shell_word(each->get_name() + ":" + first_line(each->get_description()));
  page += ")\n    _describe command commands\n" + zsh_arguments(app, false) +
          "\n    return\n  fi\n"
          "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const CLI::App* each : commands) {
    page += "  " + each->get_name() + ")\n" + zsh_arguments(*each, each->get_positionals_at_end()) +
            " ;;\n";
  }
  return page + "  esac\n}\n" + function + " \"$@\"\n";
}

std::string fish(const CLI::App& app) {
  const std::string name = app.get_name();
  std::string page = "# fish completion for " + name + ", printed by " + name + " --help=fish\n";
  const auto add_options_of = [&](const CLI::App& each, const std::string& condition) {
    for (const OptionLine& line : options_of(each)) {
      page += "complete -c " + name + condition;
      if (!line.letter.empty()) page += " -s " + line.letter.substr(1);
      page += " -l " + line.name.substr(2);
      if (line.takes_value()) page += line.takes_file() ? " -r" : " -x";
      if (!line.words().empty()) page += " -a " + shell_word(line.words());
      page += " -d " + shell_word(first_line(line.help)) + "\n";
    }
  };
  const auto commands = commands_of(app);
  for (const CLI::App* each : commands) {
    page += "complete -c " + name + " -n __fish_use_subcommand -f -a " + each->get_name() + " -d " +
            shell_word(first_line(each->get_description())) + "\n";
  }
  add_options_of(app, commands.empty() ? "" : " -n __fish_use_subcommand");
  for (const CLI::App* each : commands)
    add_options_of(*each, " -n '__fish_seen_subcommand_from " + each->get_name() + "'");
  return page;
}

// A rule of tcsh is for all subcommands: options and values are those of all.
std::string tcsh(const CLI::App& app) {
  const std::string name = app.get_name();
  std::set<std::string> options;
  std::map<std::string, std::string> values;
  const auto commands = commands_of(app);
  auto all = commands;
  all.insert(all.begin(), &app);
  for (const CLI::App* each : all) {
    for (const OptionLine& line : options_of(*each)) {
      options.insert(line.name.substr(2));
      if (line.takes_value()) values[line.name] = line.completion("f", "n");
    }
  }
  std::string page =
      "# tcsh completion for " + name + ", printed by " + name + " --help=tcsh\ncomplete " + name;
  for (const auto& [option, list] : values)
    page += " \\\n  " + shell_word("n/" + option + "/" + list + "/");
  page += " \\\n  " + shell_word("c/--/(" + joined(options, " ") + ")/");
  if (!commands.empty())
    page += " \\\n  " + shell_word("p/1/(" + joined(commands, " ", name_of) + ")/");
  return page + " \\\n  'p/*/f/'\n";
}

}  // namespace

std::string shell_word(std::string_view text) {
  return "'" + CLI::detail::find_and_replace(std::string(text), "'", "'\\''") + "'";
}

std::string value_text(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // "TEXT:{sgd,adam}", "INT:INT in [1 - 8]"
  const auto list = type.find('{');
  std::string text = list == std::string::npos ? type.substr(0, type.find(':'))
                                               : type.substr(list + 1, type.find('}') - list - 1);
  std::ranges::replace(text, ',', '|');
  return text == "UINT" ? "INT" : text;
}

std::optional<std::string> page_of(const CLI::App& app, std::string_view format) {
  if (format == "man") return man_page(app);
  if (format == "bash") return bash(app);
  if (format == "zsh") return zsh(app);
  if (format == "fish") return fish(app);
  if (format == "tcsh") return tcsh(app);
  return std::nullopt;
}

std::optional<std::string> page_asked_for(const CLI::App& app, int argc, char** argv) {
  constexpr std::string_view kHelp = "--help=";
  if (argc != 2 || !std::string_view(argv[1]).starts_with(kHelp)) return std::nullopt;
  return page_of(app, std::string_view(argv[1]).substr(kHelp.size()));
}

}  // namespace torchbridge
