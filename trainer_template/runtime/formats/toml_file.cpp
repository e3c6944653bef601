#include "trainer_template/runtime/formats/toml_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/number_text.h"

namespace torchbridge::train {
namespace {

std::optional<std::string> scalar(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return shortest(number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

// Nothing where it is of another kind.
std::optional<TomlEntry> entry_of(const toml::key& key, const toml::node& node) {
  TomlEntry entry{.key = std::string(key.str()),
                  .line = static_cast<int>(key.source().begin.line),
                  .values = {},
                  .is_list = node.is_array()};
  if (!entry.is_list) {
    auto value = scalar(node);
    if (!value) return std::nullopt;
    entry.values.push_back(*std::move(value));
    return entry;
  }
  for (const toml::node& each : *node.as_array()) {
    auto value = scalar(each);
    if (!value) return std::nullopt;
    entry.values.push_back(*std::move(value));
  }
  return entry;
}

std::string line_of(const std::string& text, int number) {
  std::istringstream lines(text);
  std::string line;
  for (int i = 0; i < number && std::getline(lines, line);) ++i;
  return line;
}

}  // namespace

Result<std::vector<TomlEntry>> read_toml(const std::filesystem::path& file) {
  std::error_code ignored;
  std::ifstream stream(file, std::ios::binary);
  if (const bool is_folder = std::filesystem::is_directory(file, ignored); is_folder || !stream) {
    return Error{formatted("--config: cannot read '{}': {}", printable(file.string()),
                           std::strerror(is_folder ? EISDIR : errno))};
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto at = [&](int line) { return formatted("{}:{}: ", printable(file.string()), line); };
  try {
    const toml::table table = toml::parse(text);
    std::vector<TomlEntry> entries;
    for (const auto& [key, node] : table) {
      const int line = static_cast<int>(key.source().begin.line);
      if (node.is_table() || node.is_array_of_tables()) {
        return Error{formatted("{}section [{}] is not supported: write all keys at the top level",
                               at(line), printable(key.str()))};
      }
      auto entry = entry_of(key, node);
      if (!entry)
        return Error{
            formatted("{}'{}': expected a number, true, false, a quoted string, or a list of these",
                      at(line), printable(key.str()))};
      entries.push_back(*std::move(entry));
    }
    std::sort(entries.begin(), entries.end(),
              [](const TomlEntry& one, const TomlEntry& other) { return one.line < other.line; });
    return entries;
  } catch (const toml::parse_error& error) {
    const int line = static_cast<int>(error.source().begin.line);
    return Error{
        formatted("{}'{}': {}", at(line), printable(line_of(text, line)), error.description())};
  }
}

std::string toml_text(const std::string& text) {
  std::ostringstream out;
  constexpr auto kOther =
      toml::format_flags::allow_literal_strings | toml::format_flags::allow_multi_line_strings;
  const toml::value<std::string> value(text);
  out << toml::toml_formatter(value, toml::toml_formatter::default_flags & ~kOther);
  return out.str();
}

}  // namespace torchbridge::train
