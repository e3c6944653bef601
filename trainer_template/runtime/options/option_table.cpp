#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>

#include <torchbridge/option_table.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/nearest_name.h"
#include "bridge/base/take_until.h"
#include "trainer_template/runtime/base/number_text.h"
#include "trainer_template/runtime/formats/toml_file.h"

namespace torchbridge::train {
namespace {

std::vector<std::string> items_of(const std::string& list) {
  std::vector<std::string> items;
  for (const std::string_view item : split_at(list, ',')) {
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

// Each overload of read() sets the value from a valid text, and returns whether the text is valid.
bool read(const std::string& text, bool& value) {
  return value = text == "true", value || text == "false";
}
bool read(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}
bool read(const std::string& text, std::integral auto& value) {
  using Number = std::remove_reference_t<decltype(value)>;
  constexpr auto kLeast =
      std::is_unsigned_v<Number>
          ? 0
          : std::int64_t{std::numeric_limits<std::make_signed_t<Number>>::min()};
  const auto number =
      parse_integer(text, kLeast, std::numeric_limits<std::make_signed_t<Number>>::max());
  if (number) value = static_cast<Number>(*number);
  return number.has_value();
}
bool read(const std::string& text, std::optional<double>& value) {
  return read(text, value.emplace());
}
bool read(const std::string& text, std::string& value) { return value = text, true; }
bool read(const std::string& text, std::filesystem::path& value) { return value = text, true; }
bool read(const std::string& text, std::vector<std::string>& value) {
  return value = items_of(text), true;
}
bool read(const std::string& text, Choice& value) {
  const auto found = std::ranges::find(value.names, text);
  value.index = static_cast<int>(found - value.names.begin());  // REQUIRES: it is one of them
  return true;
}

std::string text(const std::string& value) { return value; }
std::string text(const std::filesystem::path& value) { return value.string(); }
std::string text(bool value) { return value ? "yes" : "no"; }
std::string text(double value) { return shortest(value); }
std::string text(std::integral auto value) { return std::to_string(value); }
std::string text(const std::optional<double>& value) { return value ? text(*value) : "not set"; }
std::string text(const std::vector<std::string>& values) { return joined(values, ","); }
std::string text(const Choice& value) { return value.name(); }

}  // namespace

std::vector<std::string> DeclaredOption::choices() const {
  const auto* choice = std::get_if<Choice*>(&value);
  return choice ? (*choice)->names : rule.choices;
}

std::string DeclaredOption::kind() const {
  if (const auto names = choices(); !names.empty()) return joined(names, "|");
  return std::visit(
      []<class T>(const T*) -> std::string {
        if (std::is_same_v<T, bool>) return "true|false";
        if (std::is_integral_v<T>) return "INT";
        return std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>> ? "FLOAT"
                                                                                     : "TEXT";
      },
      value);
}

std::string DeclaredOption::assign(const std::string& text) {
  const auto names = choices();
  if (!names.empty() && std::ranges::find(names, text) == names.end()) {
    return formatted("'{}': expected one of {}{}", printable(text), joined(names, ", "),
                     did_you_mean(text, names));
  }
  if (std::string wrong = rule.check ? rule.check(text) : ""; !wrong.empty()) return wrong;
  const bool is_read = std::visit([&](auto* target) { return read(text, *target); }, value);
  return is_read ? ""
                 : formatted("'{}': expected {}", printable(text),
                             kind() == "INT"     ? "a whole number"
                             : kind() == "FLOAT" ? "a number"
                                                 : "true or false");
}

void OptionTable::add(const std::string& name, OptionValue value, const std::string& help,
                      OptionRule rule) {
  options_.push_back({.name = name,
                      .group = group_,
                      .help = help,
                      .value = value,
                      .rule = std::move(rule),
                      .default_text = toml_of(value) ? text_of(value) : ""});
}

DeclaredOption* OptionTable::find(const std::string& name) {
  const auto option = std::ranges::find(options_, name, &DeclaredOption::name);
  return option == options_.end() ? nullptr : &*option;
}

DeclaredOption& OptionTable::at(const std::string& name) { return *find(name); }

std::string text_of(const OptionValue& value) {
  return std::visit([](const auto* source) { return text(*source); }, value);
}

std::optional<std::string> toml_of(const OptionValue& value) {
  if (const auto* list = std::get_if<std::vector<std::string>*>(&value)) {
    std::vector<std::string> items;
    for (const std::string& item : **list) items.push_back(toml_text(item));
    return items.empty() ? std::nullopt : std::optional("[" + joined(items, ", ") + "]");
  }
  if (const auto* number = std::get_if<std::optional<double>*>(&value); number && !**number)
    return std::nullopt;
  if (const auto* flag = std::get_if<bool*>(&value)) return **flag ? "true" : "false";
  const std::string plain = text_of(value);
  const bool is_text = std::holds_alternative<std::string*>(value) ||
                       std::holds_alternative<Choice*>(value) ||
                       std::holds_alternative<std::filesystem::path*>(value);
  if (!is_text) return plain;
  return plain.empty() ? std::nullopt : std::optional(toml_text(plain));
}

}  // namespace torchbridge::train
