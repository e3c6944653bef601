// Number lists, as of ranks and ports: whatever the text, no number is outside the limit, which the
// first byte chooses.
#include "bridge/base/hostlist.h"
#include "tests/fuzz/programs/expect.h"

using namespace torchbridge;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kLimits[] = {0, 9, 4095, 65535};
  constexpr std::size_t kFew = 1000;
  if (size == 0) return 0;
  const int high = kLimits[data[0] % std::size(kLimits)];
  const auto text = text_of(data + 1, size - 1);
  if (is_slow(text)) return 0;
  const auto numbers = parse_number_list(text, high);
  if (!numbers) {
    expect_presentable(numbers.error());
    return 0;
  }
  expect(!numbers->empty() && numbers->size() <= kMaxListEntries,
         "a list has numbers, and not more than allowed");
  for (const int number : *numbers)
    expect(number >= 0 && number <= high, "a number is within the limit");
  if (numbers->size() > kFew) return 0;

  std::string list;
  for (const int number : *numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
  const auto again = parse_number_list(list, high);
  expect(static_cast<bool>(again) && *again == *numbers, "a list without ranges is the same list");
  return 0;
}
