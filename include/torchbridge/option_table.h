// The options of a program. Each is declared once, with its name, help text, valid values, and how
// ranks compare it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace torchbridge::train {

// What happens if ranks have different values of an option. An option that affects collectives or
// the model must be kSame.
enum class OnRanks {
  kSame,      // compared before data are read: a value other than rank 0's ends the job
  kGiven,     // likewise, but only whether it is given: for paths, which may differ between nodes
  kAtJoin,    // the setting that results on each rank is compared when the ranks join
  kRankZero,  // rank 0's value is used
  kOwn,       // each rank uses its own value
};

// One of several values, by name.
struct Choice {
  std::vector<std::string> names;
  int index = 0;

  const std::string& name() const { return names[static_cast<std::size_t>(index)]; }
};

// Its names are those of the first values of an enum, which count from 0; the first is the default.
template <class Enum>
struct OneOf : Choice {
  explicit OneOf(std::vector<std::string> all) : Choice{std::move(all)} {}
  OneOf& operator=(Enum value) { return index = static_cast<int>(value), *this; }
  operator Enum() const { return static_cast<Enum>(index); }
};

// Points to an option's value, which is its default until the command line is read. An empty list
// or text, or no number, means "not set".
using OptionValue =
    std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::optional<double>*,
                 std::string*, std::filesystem::path*, std::vector<std::string>*, Choice*>;

// Properties of an option that most options leave at their defaults.
struct OptionRule {
  OnRanks on_ranks = OnRanks::kSame;
  bool is_shown = false;  // shown in the table at the start and kept in checkpoints
  // Belongs to the model, though the shapes of its weights do not show it: a checkpoint with
  // another value is rejected. REQUIRES: is_shown.
  bool is_of_model = false;
  // The valid values of what is no Choice; empty: any value of the type.
  std::vector<std::string> choices;
  // A message about an invalid text, or "": such as those below.
  std::function<std::string(const std::string&)> check;
  std::string if_not_set;       // for --help: "0.01 for adamw, else 0"
  bool default_yields = false;  // to another option that is given: not in a file of --print-config
  // The value as it is compared and shown; empty: the value itself.
  std::function<std::string()> text;
};

struct DeclaredOption {
  std::string name, group, help;  // "--lr", "Training", "Learning rate"
  OptionValue value;
  OptionRule rule;
  std::string default_text;  // as --help shows it; empty if there is no default
  bool is_given = false;     // by the user, on the command line or in the file

  std::string key() const { return name.substr(2); }  // "lr", in files
  std::vector<std::string> choices() const;           // the valid values; empty: any of the type
  std::string kind() const;  // of values: "sgd|adam|adamw", INT, FLOAT, TEXT
  // Sets the value from the text. Returns a message about an invalid text, or "".
  std::string assign(const std::string& text);
};

class OptionTable {
 public:
  // Options declared after this call are below this title in --help.
  void begin_group(const std::string& title) { group_ = title; }
  // `value` must outlive the table.
  void add(const std::string& name, OptionValue value, const std::string& help,
           OptionRule rule = {});
  // REQUIRES: it is declared.
  DeclaredOption& at(const std::string& name);
  DeclaredOption* find(const std::string& name);  // null if there is none
  std::span<DeclaredOption> all() { return options_; }

 private:
  std::string group_;
  std::vector<DeclaredOption> options_;
};

// "0.1", "yes", "a,b". If the value is not set: "", but "not set" for an optional number.
std::string text_of(const OptionValue& value);

// 0.1, true, ["a", "b"], "a text"; nothing if the value is not set.
std::optional<std::string> toml_of(const OptionValue& value);

// Checks of option values: each returns a message about an invalid text, or "" for a valid one.
std::string check_backend(const std::string& name);
std::string not_empty(const std::string& text);
std::string existing_file(const std::string& path);
std::function<std::string(const std::string&)> at_least(std::int64_t least);  // whole numbers
std::function<std::string(const std::string&)> whole_between(std::int64_t least, std::int64_t most);
// Finite numbers.
std::string not_negative(const std::string& text);
std::function<std::string(const std::string&)> number_between(double least, double most);

}  // namespace torchbridge::train
