// The options of a program, each declared once: its name, its text in --help, what it may be, and what else is to be
// known of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace torchbridge::train {

// What ranks that were given different values of an option do. It is kSame for all that has a say in what the ranks do
// together, or in the model that they share.
enum class OnRanks {
  kSame,      // compared before data are read: another value than rank 0's ends the job
  kGiven,     // the same of whether it is given at all: paths, which nodes may have elsewhere
  kMeeting,   // compared as the ranks meet, by what comes of it on each
  kRankZero,  // rank 0's value counts
  kOwn,       // each goes by its own
};

// Where the value of an option is; before the command line is read, its default. An empty list or text and no number
// mean that it is not set.
using OptionValue = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::optional<double>*,
                                 std::string*, std::filesystem::path*, std::vector<std::string>*>;

// Of an option: what is not the same for most.
struct OptionRule {
  OnRanks on_ranks = OnRanks::kSame;
  bool is_shown = false;                                 // in the table at the start, and kept in checkpoints
  std::vector<std::string> choices;                      // one of them; empty: anything that is of the value's type
  std::function<std::string(const std::string&)> check;  // what is wrong with a text, or nothing (option_checks.h)
  std::string if_not_set;                                // for --help: "0.01 for adamw, else 0"
  std::function<std::string()> text;  // of the value, as it is compared and shown, where that is not what was given
};

struct DeclaredOption {
  std::string name, group, help;  // "--lr", "Training", "Learning rate"
  OptionValue value;
  OptionRule rule;
  std::string default_text;  // as --help shows it; empty where it is not set
  bool is_given = false;     // by the user, on the command line or in the file

  std::string key() const { return name.substr(2); }  // "lr", in files
  std::string kind() const;                           // of values: "sgd|adam|adamw", INT, FLOAT, TEXT
  // What is wrong with the text, or nothing: then it is the value.
  std::string assign(const std::string& text);
};

class OptionTable {
 public:
  // What is declared from now on stands below this title in --help.
  void begin_group(const std::string& title) { group_ = title; }
  // `value` must outlive the table.
  void add(const std::string& name, OptionValue value, const std::string& help, OptionRule rule = {});
  // REQUIRES: it is declared.
  DeclaredOption& at(const std::string& name);
  DeclaredOption* find(const std::string& name);  // null where there is none
  std::span<DeclaredOption> all() { return options_; }

 private:
  std::string group_;
  std::vector<DeclaredOption> options_;
};

// "0.1", "yes", "a,b"; empty where it is not set, but for an optional number: "not set".
std::string text_of(const OptionValue& value);

// 0.1, true, ["a", "b"], "a text"; nothing where it is not set.
std::optional<std::string> toml_of(const OptionValue& value);

}  // namespace torchbridge::train
