// Host lists: whatever the text, the names are host names, and written out one by one they are the
// same list.
#include "bridge/base/hostlist.h"
#include "tests/fuzz/programs/expect.h"

using namespace torchbridge;

namespace {

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

void expect_names(const std::vector<std::string>& names) {
  expect(!names.empty() && names.size() <= kMaxListEntries,
         "a list has names, and not more than allowed");
  for (const auto& name : names) {
    expect(!name.empty() && name.find_first_not_of(kNameCharacters) == std::string::npos,
           "a name is a host name");
  }
}

void expect_same_when_written_out(const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ",") + name;
  const auto again = parse_hostlist(list);
  expect(static_cast<bool>(again) && *again == names, "a list without brackets is the same list");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kFew = 1000;  // writing out a million names costs more than it shows
  const auto text = text_of(data, size);
  if (is_slow(text)) return 0;
  const auto names = parse_hostlist(text);
  const auto first = first_host(text);
  expect(static_cast<bool>(names) == static_cast<bool>(first), "both readers take the same lists");
  if (!names) {
    expect_presentable(names.error());
    return 0;
  }
  expect_names(*names);
  expect(*first == names->front(), "the first host is the first of the list");
  if (names->size() <= kFew) expect_same_when_written_out(*names);
  return 0;
}
