#include <torchbridge/program/program.h>

#include <CLI/CLI.hpp>
#include <torchbridge/core/env_map.h>
#include <torchbridge/core/nearest_name.h>

#include <algorithm>

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

// "--batch_size=8" is "batch-size".
std::string bare_name(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string name(word.substr(0, word.find('=')));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// The option that is meant, or nothing.
std::string option_meant(const std::string& name, const std::vector<std::string>& names, std::span<const OtherName> others) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  std::vector<std::string> all = names;
  for (const OtherName& other : others) all.emplace_back(other.theirs);
  const std::string nearest = nearest_name(name, all);
  const auto other = std::find_if(others.begin(), others.end(), [&](const OtherName& each) { return each.theirs == nearest; });
  return other == others.end() ? nearest : std::string(other->ours);
}

}  // namespace

void set_up(CLI::App& app) { app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast); }

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  add_option_names(app, names);
  return names;
}

std::string did_you_mean_option(std::string_view word, std::vector<std::string> names, std::span<const OtherName> others, const std::string& dashes) {
  const std::string name = bare_name(word);
  std::string meant = option_meant(name, names, others);
  // "optimizer.lr" of a program whose options are in sections.
  if (const auto dot = name.rfind('.'); meant.empty() && dot != std::string::npos) meant = option_meant(name.substr(dot + 1), names, others);
  return meant.empty() ? "" : "; did you mean '" + dashes + meant + "'?";
}

std::string text_of(const CLI::App& app, const CLI::ParseError& error, std::span<const OtherName> others) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const auto option = std::find_if(unknown.begin(), unknown.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (option != unknown.end()) {
    return "there is no option '" + printable(option->substr(0, option->find('='))) + "'" + did_you_mean_option(*option, option_names(app), others);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !unknown.empty()) return "'" + printable(unknown.front()) + "' belongs to no option";
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace torchbridge
