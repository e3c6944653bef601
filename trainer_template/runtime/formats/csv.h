// Tables of numbers in CSV files (RFC 4180), without line breaks inside fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

struct CsvOptions {
  char separator = ',';
  bool header = true;  // the first line holds the names of the columns
};

struct NumberTable {
  std::vector<std::string> names;  // of the columns; empty without a header
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;  // row by row, each the float nearest to the number in the file

  // For messages: the line of the file, from 1. Lines without text are allowed at the end only.
  std::int64_t line_of(std::int64_t row) const { return row + (names.empty() ? 1 : 2); }
};

// Ignores spaces around a field; a number may be in quotes; lines end with \n or \r\n. Errors name line and column: a
// missing number or one that is not finite, too many or too few fields, a header of numbers, no rows.
Result<NumberTable> parse_csv(std::string_view text, const CsvOptions& options);

// Throws TrainError, which names the file.
NumberTable read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

}  // namespace torchbridge::train
