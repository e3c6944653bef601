// Task counts: whatever the text, every node has a task, and the list written out one by one is the
// same list.
#include "bridge/base/hostlist.h"
#include "tests/fuzz/programs/expect.h"

using namespace torchbridge;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kFew = 1000;
  const auto text = text_of(data, size);
  if (is_slow(text)) return 0;
  const auto counts = parse_task_counts(text);
  if (!counts) {
    expect_presentable(counts.error());
    return 0;
  }
  expect(!counts->empty() && counts->size() <= kMaxListEntries,
         "a list has nodes, and not more than allowed");
  for (const int count : *counts) expect(count >= 1, "every node has a task");
  if (counts->size() > kFew) return 0;

  std::string list;
  for (const int count : *counts) list += (list.empty() ? "" : ",") + std::to_string(count);
  const auto again = parse_task_counts(list);
  expect(static_cast<bool>(again) && *again == *counts,
         "a list without repetitions is the same list");
  return 0;
}
