#include "bridge/cli/run_option_pages.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bridge/cli/run_option_table.h"
#include "bridge/program/program.h"

namespace torchbridge {
namespace {

constexpr const char* kPurpose = "Runs a program as the ranks of a distributed job, as torchrun does.";
constexpr const char* kRules =
    "Options stand before the program. Each may be written with _ for -, and be shortened as long as it is clear. "
    "Options of torchrun have a variable for their default: PET_NPROC_PER_NODE for --nproc-per-node. Flags take 0 or "
    "1 there.";

using Cells = std::vector<std::string>;

std::string replaced(std::string_view text, char letter, std::string_view by) {
  std::string all;
  for (const char each : text) all += each == letter ? std::string(by) : std::string(1, each);
  return all;
}

// "--log-dir DIR", "-m, --module".
std::string spelled(const RunOption& option, std::string_view separator) {
  const std::string letter = option.letter ? std::string("-") + option.letter + std::string(separator) : "";
  return letter + "--" + std::string(option.name) + (option.is_flag() ? "" : " " + std::string(option.metavar));
}

std::string help_page() {
  CLI::App app(kPurpose, "torchbridge run");
  set_up(app);
  app.set_version_flag();
  std::string none;
  app.add_option("PROGRAM", none, "A .py script, which python runs, or what can be executed")
      ->required()
      ->type_name("");
  app.add_option("ARGUMENTS", none, "Passed to it as they are; but ${local_rank} is replaced")->type_name("");
  for (const RunOption& option : run_options()) {
    const std::string letter = option.letter ? std::string("-") + option.letter + "," : "";
    const std::string names = letter + "--" + std::string(option.name), text(option.help);
    auto* shown = option.is_flag() ? app.add_flag(names, text) : app.add_option(names, none, text);
    shown->group(std::string(option.group))->default_str(std::string(option.default_text));
    if (!option.is_flag()) shown->type_name("{" + std::string(option.metavar) + "}");
  }
  app.footer(wrapped(kRules, 100));
  return app.help();
}

// Text of roff, where a dash is a minus, so that it can be searched and copied.
std::string roff(std::string_view text) { return replaced(replaced(text, '\\', "\\e"), '-', "\\-"); }

std::string man_page() {
  std::string page =
      ".TH TORCHBRIDGE\\-RUN 1 \"\" torchbridge \"User Commands\"\n.SH NAME\n"
      "torchbridge\\-run \\- run a program as the ranks of a distributed job\n.SH SYNOPSIS\n"
      ".B torchbridge run\n[\\fIOPTIONS\\fR] [\\fB\\-\\-\\fR] \\fIPROGRAM\\fR [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n" +
      roff(kPurpose) + "\n.PP\n" + roff(kRules) + "\n.SH OPTIONS\n";
  std::string_view group;
  for (const RunOption& option : run_options()) {
    if (option.group != group) page += ".SS \"" + roff(option.group) + "\"\n";
    group = option.group;
    const auto value = option.default_text.empty() ? "" : " (default: " + roff(option.default_text) + ")";
    const auto other = option.other_variable.empty() ? "" : ", " + roff(option.other_variable);
    const auto variable = option.variable.empty() ? "" : "\n.br\nVariable: " + roff(option.variable) + other;
    page += ".TP\n.B " + roff(spelled(option, ", ")) + "\n" + roff(option.help) + value + "." + variable + "\n";
  }
  return page + ".SH SEE ALSO\ntorchbridge \\-\\-help\n";
}

// The first %WORD% in the text replaced by the value.
void fill(std::string& text, const std::string& word, const std::string& value) {
  text.replace(text.find("%" + word + "%"), word.size() + 2, value);
}

// %PATTERNS% are the options with a value, %VALUES% the cases of those whose values are known.
constexpr const char* kCompletion = R"(# bash completion for torchbridge, printed by torchbridge run --help=bash
_torchbridge() {
  local words word option= i
  COMPREPLY=()
  read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
  [[ ${COMP_LINE:0:COMP_POINT} != *[[:space:]] ]] || words+=('')
  word=${words[-1]}
  if ((${#words[@]} < 3)); then
    COMPREPLY=($(compgen -W 'env exec explain launch run --help --version' -- "$word"))
    return
  fi
  [[ ${words[1]} == run || ${words[1]} == launch ]] || { compopt -o default; return; }
  for ((i = 2; i < ${#words[@]} - 1; ++i)); do
    if [[ $option ]]; then option=; continue; fi
    case ${words[i]//_/-} in
      --|[!-]*) compopt -o default; return ;;  # of the program
      %PATTERNS%) option=${words[i]//_/-} ;;
    esac
  done
  if [[ ! $option && $word == --*=* ]]; then
    option=${word%%=*} option=${option//_/-} word=${word#*=}
  fi
  case $option in
    '')
      if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W '%OPTIONS%' -- "$word"))
      else
        compopt -o default
      fi ;;
%VALUES%  esac
}
complete -F _torchbridge torchbridge
)";

std::string bash_completion() {
  std::string options = "--help", values, patterns;
  for (const RunOption& option : run_options()) {
    const std::string name = "--" + std::string(option.name);
    options += " " + name;
    if (option.is_flag()) continue;
    const std::string pattern = name + (option.letter ? std::string("|-") + option.letter : "");
    patterns += (patterns.empty() ? "" : "|") + pattern;
    std::string words;
    for (const std::string& value : named_values(option)) words += (words.empty() ? "" : " ") + value;
    const bool is_path = option.metavar == "FILE" || option.metavar == "DIR";
    if (is_path) values += "    " + pattern + ") compopt -o default ;;\n";
    if (!words.empty()) values += "    " + pattern + ") COMPREPLY=($(compgen -W '" + words + "' -- \"$word\")) ;;\n";
  }
  std::string page = kCompletion;
  fill(page, "PATTERNS", patterns);
  fill(page, "OPTIONS", options);
  fill(page, "VALUES", values);
  return page;
}

std::string markdown_row(const Cells& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += " " + cell + (cell.empty() ? "|" : " |");
  return row + "\n";
}

std::string code(std::string_view text) { return text.empty() ? "" : "`" + replaced(text, '|', "\\|") + "`"; }

std::string markdown() {
  std::string theirs = "| option | variable | default | difference |\n|---|---|---|---|\n",
              ours = "| option | default | |\n|---|---|---|\n";
  for (const RunOption& option : run_options()) {
    const std::string names = option.letter ? code(spelled(option, "`, `")) : code(spelled(option, ""));
    if (option.origin == OptionOrigin::kOurs) {
      ours += markdown_row({names, code(option.default_text), std::string(option.help)});
      continue;
    }
    const std::string difference(option.difference.empty() ? "same" : option.difference);
    theirs += markdown_row({names, code(option.variable), code(option.default_text), difference});
  }
  return theirs + "\nOptions that torchrun does not have:\n\n" + ours;
}

std::string json_page() {
  auto rows = nlohmann::ordered_json::array();
  for (const RunOption& option : run_options()) {
    constexpr const char* kOrigins[] = {"torchrun", "torch.distributed.launch", "torchbridge"};
    rows.push_back({{"name", option.name},
                    {"letter", option.letter ? std::string(1, option.letter) : ""},
                    {"metavar", option.metavar},
                    {"values", takes_named_values_only(option) ? named_values(option) : Cells()},
                    {"default", option.default_text},
                    {"variable", option.variable},
                    {"origin", kOrigins[static_cast<int>(option.origin)]},
                    {"difference", option.difference}});
  }
  return rows.dump(1) + "\n";
}

struct Page {
  std::string_view format;
  std::string (*text)();
};
constexpr Page kPages[] = {
    {"", help_page}, {"man", man_page}, {"bash", bash_completion}, {"markdown", markdown}, {"json", json_page}};

}  // namespace

std::optional<std::string> run_option_page(std::string_view format) {
  const auto page = std::ranges::find(kPages, format, &Page::format);
  return page == std::end(kPages) ? std::nullopt : std::optional(page->text());
}

std::vector<std::string> run_option_page_formats() {
  std::vector<std::string> formats;
  for (const Page& page : kPages) {
    if (!page.format.empty()) formats.emplace_back(page.format);
  }
  return formats;
}

}  // namespace torchbridge
