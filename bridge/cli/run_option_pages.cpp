#include "bridge/cli/run_option_pages.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bridge/cli/run_option_table.h"
#include "bridge/program/pages.h"
#include "bridge/program/program.h"

namespace torchbridge {
namespace {

constexpr const char* kPurpose =
    "Runs a program as the ranks of a distributed job, as torchrun does.";
constexpr const char* kRules =
    "Options stand before the program. Each may be written with _ for -, and be shortened as long "
    "as it is clear. Options of torchrun have a variable for their default: PET_NPROC_PER_NODE for "
    "--nproc-per-node. Flags take 0 or 1 there.";

using Cells = std::vector<std::string>;

// "--log-dir DIR", "-m, --module".
std::string spelled(const RunOption& option, std::string_view separator) {
  const std::string letter =
      option.letter ? std::string("-") + option.letter + std::string(separator) : "";
  return letter + "--" + std::string(option.name) +
         (option.is_flag() ? "" : " " + std::string(option.metavar));
}

std::string help_page() { return run_command("torchbridge run")->help(); }

std::string man_page() { return page_of(*run_command("torchbridge run"), "man").value(); }

std::string markdown_row(const Cells& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += " " + cell + (cell.empty() ? "|" : " |");
  return row + "\n";
}

std::string code(std::string_view text) {
  return text.empty() ? ""
                      : "`" + CLI::detail::find_and_replace(std::string(text), "|", "\\|") + "`";
}

std::string markdown() {
  std::string theirs = "| option | variable | default | difference |\n|---|---|---|---|\n",
              ours = "| option | default | |\n|---|---|---|\n";
  for (const RunOption& option : run_options()) {
    const std::string names =
        option.letter ? code(spelled(option, "`, `")) : code(spelled(option, ""));
    if (option.origin == OptionOrigin::kOurs) {
      ours += markdown_row({names, code(option.default_text), std::string(option.help)});
      continue;
    }
    const std::string since =
        option.since.empty() ? "" : " (since torch " + std::string(option.since) + ")";
    const std::string difference =
        std::string(option.difference.empty() ? "same" : option.difference) + since;
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
                    {"difference", option.difference},
                    {"since", option.since}});
  }
  return rows.dump(1) + "\n";
}

struct Page {
  std::string_view format;
  std::string (*text)();
};
constexpr Page kPages[] = {
    {"", help_page}, {"man", man_page}, {"markdown", markdown}, {"json", json_page}};

}  // namespace

std::shared_ptr<CLI::App> run_command(const std::string& name) {
  auto app = std::make_shared<CLI::App>(kPurpose, name);
  set_up(*app);
  app->set_version_flag();
  app->add_option("PROGRAM", "A .py script, which python runs, or what can be executed")
      ->required()
      ->type_name("");
  app->add_option("ARGUMENTS", "Passed to it as they are; but ${local_rank} is replaced")
      ->type_name("");
  app->positionals_at_end();
  for (const RunOption& option : run_options()) {
    const std::string letter = option.letter ? std::string("-") + option.letter + "," : "";
    const std::string names = letter + "--" + std::string(option.name), text(option.help);
    CLI::Option* shown =
        option.is_flag() ? app->add_flag(names, text) : app->add_option(names, text);
    shown->group(std::string(option.group))->default_str(std::string(option.default_text));
    if (!option.is_flag()) shown->type_name("{" + std::string(option.metavar) + "}");
    const std::string other =
        option.other_variable.empty() ? "" : ", " + std::string(option.other_variable);
    shown->envname(std::string(option.variable) + other);
  }
  app->footer(wrapped(kRules, 100));
  return app;
}

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
