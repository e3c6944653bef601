// A table of numbers from the text of a CSV file.
#pragma once

#include <string_view>

#include <torchbridge/formats.h>

#include "bridge/base/result.h"

namespace torchbridge::train {

// As read_csv() does; errors name line and column.
Result<NumberTable> parse_csv(std::string_view text, const CsvOptions& options);

}  // namespace torchbridge::train
