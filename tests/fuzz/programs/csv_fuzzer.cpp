// Tables of numbers: whatever the text, a table is rectangular and finite, and written out it is
// the same table.
#include <cmath>
#include <cstdio>

#include "tests/fuzz/programs/expect.h"
#include "trainer_template/runtime/formats/csv.h"

using namespace torchbridge;

namespace {

std::string written(const train::NumberTable& table) {
  std::string text;
  for (std::int64_t i = 0; i < std::ssize(table.values); ++i) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.17g", table.values[i]);
    text += number;
    text += (i + 1) % table.columns == 0 ? '\n' : ',';
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool header = data[0] % 2 == 0;
  const auto table = train::parse_csv(
      text_of(data + 1, size - 1), {.separator = data[0] % 3 == 0 ? ';' : ',', .header = header});
  if (!table) {
    expect_presentable(table.error());
    return 0;
  }
  expect(table->rows > 0 && table->columns > 0, "a table has numbers");
  expect(std::ssize(table->values) == table->rows * table->columns, "all rows have as many fields");
  expect(std::ssize(table->names) == (header ? table->columns : 0),
         "each column has a name, if any has");
  for (const double value : table->values) expect(std::isfinite(value), "numbers are finite");
  const auto again = train::parse_csv(written(*table), {.header = false});
  expect(again && again->values == table->values && again->rows == table->rows,
         "a table that is written out is the same table");
  return 0;
}
