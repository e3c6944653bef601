// What the command lines of all programs have in common, on CLI11.
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

// A name that other programs have for an option of this one: {"learning-rate", "lr"}.
struct OptionSuggestion {
  std::string_view theirs, ours;
};

// --version; a --help of at most 100 columns; and of an option that is given several times the last value counts. To be
// called before options and subcommands are added, which inherit it.
void set_up(CLI::App& app);

// What --help or --version prints, where `error` is CLI11's way to say that it was given.
std::optional<std::string> asked_for(const CLI::App& app, const CLI::ParseError& error);

// "; did you mean '--lr'?", or nothing, for a `word` that is none of `names` (without dashes): "--lerning-rate=0.1",
// "--batch_size", "optimizer.lr".
std::string did_you_mean_option(std::string_view word, const std::vector<std::string>& names,
                                std::span<const OptionSuggestion> others, const std::string& dashes = "--");

// `text` in lines of at most `width` columns, broken between words.
std::string wrapped(const std::string& text, std::size_t width);

// What is wrong with the command line, in one line: of options that `app` does not have the first one, whatever else is
// wrong.
std::string text_of(const CLI::App& app, const CLI::ParseError& error, std::span<const OptionSuggestion> others = {});

}  // namespace torchbridge
