// Numbers in text files with separators: CSV as RFC 4180 has it, without line breaks inside of fields.
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

// An error names line and column: not a finite number (a missing one too), too many or too few fields, a header that
// holds numbers, no rows. Spaces around a field do not count, a number may stand in quotes; lines end with \n or \r\n.
Result<NumberTable> parse_csv(std::string_view text, const CsvOptions& options);

// Throws TrainError, which names the file.
NumberTable read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

}  // namespace torchbridge::train
