// The common part of all programs' command lines, on CLI11.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace torchbridge {

// The name of an option in other programs, and in this one: {"learning-rate", "lr"}.
struct OptionSuggestion {
  std::string_view theirs, ours;
};

// Adds --version and a --help of at most 100 columns; of an option that is given several times the
// last value counts. Call it before options and subcommands are added: they inherit the settings.
// `built_with` ends the line of --version: "torch 2.11.0".
void set_up(CLI::App& app, const std::string& built_with = {});

// The output of --help or --version, where `error` is CLI11's signal that it was given.
std::optional<std::string> help_or_version(const CLI::App& app, const CLI::ParseError& error);

// "; did you mean '--lr'?", or nothing, for a `word` that is none of `names` (without dashes):
// "--lerning-rate=0.1", "--batch_size", "optimizer.lr".
std::string did_you_mean_option(std::string_view word, const std::vector<std::string>& names,
                                std::span<const OptionSuggestion> others,
                                const std::string& dashes = "--");

// `text` in lines of at most `width` columns, broken between words.
std::string wrapped(const std::string& text, std::size_t width);

// The error of the command line, in one line: the first option that `app` does not have, before any
// other error.
std::string command_line_error(const CLI::App& app, const CLI::ParseError& error,
                               std::span<const OptionSuggestion> others = {});

}  // namespace torchbridge
