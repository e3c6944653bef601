#include "trainer_template/runtime/formats/csv.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include <torchbridge/errors.h>
#include <torchbridge/formats.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "trainer_template/runtime/formats/plain_text.h"

namespace torchbridge::train {
namespace {

std::string_view without_quotes(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

std::string quoted(char separator) {
  return separator == '\t'  ? "a tab"
         : separator == ' ' ? "a space"
                            : "'" + std::string(1, separator) + "'";
}

// Removes the first line from `text` and returns it without its line end.
std::string_view take_line(std::string_view& text) {
  std::string_view line = take_until(text, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The fields of a line, one at a time. A separator within quotes does not end a field.
class Fields {
 public:
  Fields(std::string_view line, char separator) : rest_(line), separator_(separator) {}

  std::optional<std::string_view> next() {
    if (done_) return std::nullopt;
    bool quoted = false;
    std::size_t end = 0;
    for (; end < rest_.size() && (quoted || rest_[end] != separator_); ++end)
      quoted ^= rest_[end] == '"';
    const std::string_view field = rest_.substr(0, end);
    done_ = end == rest_.size();
    if (!done_) rest_.remove_prefix(end + 1);
    return without_quotes(trimmed(field, " \t"));
  }

 private:
  std::string_view rest_;
  const char separator_;
  bool done_ = false;
};

std::optional<double> parse_number(std::string_view text) {
  // from_chars takes no plus sign.
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    // 0 for an underflow, infinity for an overflow.
    value = std::strtod(std::string(text).c_str(), nullptr);
  if (error == std::errc::invalid_argument || end != text.data() + text.size() ||
      !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::size_t count_outside_quotes(std::string_view line, char separator) {
  Fields fields(line, separator);
  std::size_t count = 0;
  while (fields.next()) ++count;
  return count - 1;
}

// The separator of a file whose first line lacks the expected one and has another one, as often as
// the second line.
char other_separator(std::string_view text, char expected) {
  const std::string_view first = take_line(text), second = take_line(text);
  if (count_outside_quotes(first, expected) > 0) return '\0';
  for (const char other : {',', ';', '\t', '|', ' '}) {
    const std::size_t count = count_outside_quotes(first, other);
    if (other != expected && count > 0 && count == count_outside_quotes(second, other))
      return other;
  }
  return '\0';
}

// What a file is that is no table of this separator; empty for one that may be.
std::string other_format(std::string_view text, char separator) {
  if (std::string other = why_no_plain_text(text); !other.empty()) return other;
  // The file's end may have an LF of its own.
  const std::string_view first_line = text.substr(0, text.find('\n'));
  if (first_line.find('\r') < first_line.size() - 1)
    return "has lines that end with CR alone: convert them, for instance with tr '\\r' '\\n'";
  const char other = other_separator(text, separator);
  if (other == '\0') return {};
  return formatted("line 1: its fields are separated by {}, expected {}: convert the file",
                   quoted(other), quoted(separator));
}

class Parser {
 public:
  Parser(std::string_view text, const CsvOptions& options) : rest_(text), options_(options) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // Excel writes it
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  Result<NumberTable> parse() {
    if (const std::string format = other_format(rest_, options_.separator); !format.empty())
      return Error{format};
    if (options_.header && !rest_.empty()) {
      if (auto read = read_header(); !read) return read.error();
    }
    while (rest_.find_first_not_of(" \t\r\n") != std::string_view::npos) {
      if (auto read = read_row(); !read) return read.error();
      ++table_.rows;
    }
    if (table_.rows == 0) return Error{"has no rows of numbers"};
    return std::move(table_);
  }

 private:
  std::string_view next_line() {
    ++line_;
    return take_line(rest_);
  }

  std::string location(std::int64_t column) const {
    std::string text = formatted("line {}, column {}", line_, column + 1);
    if (column < std::ssize(table_.names)) text += " ('" + printable(table_.names[column]) + "')";
    return text + ": ";
  }

  Status read_header() {
    Fields fields(next_line(), options_.separator);
    std::set<std::string_view> seen;
    while (const auto field = fields.next()) {
      const std::int64_t column = table_.columns;
      if (field->empty()) return Error{location(column) + "the name is missing"};
      if (parse_number(*field)) {
        return Error{formatted("{}'{}' is a number, expected a name; does the file have no header?",
                               location(column), printable(*field))};
      }
      if (!seen.insert(*field).second)
        return Error{
            formatted("{}'{}' is the name of two columns", location(column), printable(*field))};
      table_.names.emplace_back(*field);
      ++table_.columns;
    }
    return Ok{};
  }

  Status read_row() {
    Fields fields(next_line(), options_.separator);
    std::int64_t column = 0;
    while (const auto field = fields.next()) {
      const auto value = parse_number(*field);
      const bool too_many = table_.columns > 0 && column == table_.columns;
      if (too_many)
        return Error{formatted("{}expected {} fields, as in the lines before", location(column),
                               table_.columns)};
      if (field->empty()) return Error{location(column) + "the number is missing"};
      if (!value)
        return Error{
            formatted("{}'{}' is not a finite number", location(column), printable(*field))};
      table_.values.push_back(*value);
      ++column;
    }
    if (table_.columns == 0) table_.columns = column;
    if (column < table_.columns) {
      return Error{
          formatted("{}the line ends, expected {} fields", location(column), table_.columns)};
    }
    return Ok{};
  }

  std::string_view rest_;
  const CsvOptions options_;
  NumberTable table_;
  std::int64_t line_ = 0;
};

}  // namespace

Result<NumberTable> parse_csv(std::string_view text, const CsvOptions& options) {
  return Parser(text, options).parse();
}

NumberTable read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  auto table = parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, options);
  if (!table) throw TrainError(path.string() + ": " + table.error().message);
  return *std::move(table);
}

}  // namespace torchbridge::train
