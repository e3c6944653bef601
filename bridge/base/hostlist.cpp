#include "bridge/base/hostlist.h"

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

constexpr int kMaxDigits = 18;         // of a host number: all fit in 64 bits
constexpr std::size_t kMaxName = 255;  // characters, more than a DNS name has

Error bad_list(std::string_view text, const std::string& why) {
  return {formatted("list '{}': {}", printable(text), why)};
}

// Cuts `text` at commas outside brackets. An unbalanced or nested bracket is an error.
Result<std::vector<std::string_view>> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[') {
      if (inside) return bad_list(text, "'[' inside brackets");
      inside = true;
    } else if (c == ']') {
      if (!inside) return bad_list(text, "']' without '['");
      inside = false;
    } else if (c == ',' && !inside) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  if (inside) return bad_list(text, "missing ']'");
  parts.push_back(text.substr(start));
  return parts;
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "08-10" or "7", as numbers and the width that keeps leading zeros.
struct NumberRange {
  std::int64_t low = 0, high = 0;
  std::size_t width = 0;
  std::size_t size() const { return static_cast<std::size_t>(high - low) + 1; }
};

Result<NumberRange> parse_range(std::string_view text) {
  const auto dash = text.find('-');
  const auto low = text.substr(0, dash);
  const auto high = dash == std::string_view::npos ? low : text.substr(dash + 1);
  if (!all_digits(low) || !all_digits(high) || low.size() > kMaxDigits ||
      high.size() > kMaxDigits) {
    return bad_list(text, "expected a number or a range LO-HI");
  }
  const NumberRange range{*parse_integer(low, 0, INT64_MAX), *parse_integer(high, 0, INT64_MAX),
                          low.size()};
  if (range.high < range.low) return bad_list(text, "the range is descending");
  return range;
}

std::string padded(std::int64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

// The numbers between one pair of brackets, as text.
Result<std::vector<std::string>> expand_brackets(std::string_view inside) {
  auto parts = split_at_commas(inside);
  if (!parts) return parts.error();
  std::vector<std::string> numbers;
  for (const auto part : *parts) {
    const auto range = parse_range(part);
    if (!range) return range.error();
    if (range->size() > kMaxListEntries - numbers.size())
      return bad_list(inside, "too many entries");
    for (std::int64_t n = range->low; n <= range->high; ++n)
      numbers.push_back(padded(n, range->width));
  }
  return numbers;
}

// Appends all names of one element such as "rack[1-2]n[0-3]" to `names`.
Status expand_element(std::string_view element, std::vector<std::string>& names) {
  std::vector<std::string> prefixes = {""};
  while (!element.empty()) {
    const auto open = element.find('[');
    const auto plain = element.substr(0, open);
    if (prefixes.back().size() + plain.size() > kMaxName) {
      return bad_list(element, formatted("a name longer than {} characters", kMaxName));
    }
    for (auto& prefix : prefixes) prefix += plain;
    if (open == std::string_view::npos) break;
    const auto close = element.find(']', open);
    auto numbers = expand_brackets(element.substr(open + 1, close - open - 1));
    if (!numbers) return numbers.error();
    if (prefixes.size() > kMaxListEntries / numbers->size())
      return bad_list(element, "too many entries");
    std::vector<std::string> longer;
    longer.reserve(prefixes.size() * numbers->size());
    for (const auto& prefix : prefixes) {
      for (const auto& number : *numbers) longer.push_back(prefix + number);
    }
    prefixes = std::move(longer);
    element.remove_prefix(close + 1);
  }
  if (prefixes.size() > kMaxListEntries - names.size())
    return bad_list(element, "too many entries");
  names.insert(names.end(), std::make_move_iterator(prefixes.begin()),
               std::make_move_iterator(prefixes.end()));
  return Ok{};
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '[' || c == ']' || c == ',';
}

Result<std::vector<std::string_view>> host_elements(std::string_view text) {
  for (const char c : text) {
    if (!is_host_character(c))
      return bad_list(text, formatted("'{}' is not allowed in a host name", printable({&c, 1})));
  }
  auto elements = split_at_commas(text);
  if (!elements) return elements.error();
  for (const auto element : *elements) {
    if (element.empty()) return bad_list(text, "an empty host name");
  }
  return elements;
}

}  // namespace

Result<std::vector<std::string>> parse_hostlist(std::string_view text) {
  const auto elements = host_elements(text);
  if (!elements) return elements.error();
  std::vector<std::string> names;
  for (const auto element : *elements) {
    if (const auto done = expand_element(element, names); !done) return done.error();
  }
  return names;
}

Result<std::string> first_host(std::string_view text) {
  auto names = parse_hostlist(text);
  if (!names) return names.error();
  return std::move(names->front());
}

Result<std::vector<int>> parse_task_counts(std::string_view text) {
  constexpr int kMaxTasks = 10'000'000;
  auto parts = split_at_commas(text);
  if (!parts) return parts.error();
  std::vector<int> counts;
  for (const auto part : *parts) {
    const auto open = part.find("(x");
    const auto count = parse_integer(part.substr(0, open), 1, kMaxTasks);
    if (!count)
      return bad_list(text, formatted("expected a number of tasks, found '{}'", printable(part)));
    std::int64_t repeat = 1;
    if (open != std::string_view::npos) {
      if (part.back() != ')') return bad_list(text, "missing ')'");
      const auto number =
          parse_integer(part.substr(open + 2, part.size() - open - 3), 1, kMaxListEntries);
      if (!number) return bad_list(text, "expected a number of nodes after '(x'");
      repeat = *number;
    }
    if (static_cast<std::size_t>(repeat) > kMaxListEntries - counts.size())
      return bad_list(text, "too many entries");
    counts.insert(counts.end(), static_cast<std::size_t>(repeat), static_cast<int>(*count));
  }
  return counts;
}

Result<std::vector<int>> parse_number_list(std::string_view text, int high) {
  auto parts = split_at_commas(text);
  if (!parts) return parts.error();
  std::vector<int> numbers;
  for (const auto part : *parts) {
    const auto range = parse_range(part);
    if (!range) return range.error();
    if (range->high > high) return bad_list(text, formatted("no number may exceed {}", high));
    if (range->size() > kMaxListEntries - numbers.size()) return bad_list(text, "too many entries");
    for (std::int64_t n = range->low; n <= range->high; ++n) numbers.push_back(static_cast<int>(n));
  }
  return numbers;
}

}  // namespace torchbridge
