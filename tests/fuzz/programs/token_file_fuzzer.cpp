// Headers of token files: whatever the bytes, the tokens lie within the file.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/programs/expect.h"
#include "trainer_template/runtime/formats/token_file.h"

using namespace torchbridge;

// The file's size, then its first bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t file_size = 0;
  if (size < sizeof(file_size)) return 0;
  std::memcpy(&file_size, data, sizeof(file_size));
  file_size %= std::uint64_t{1} << 62;
  const std::span<const std::uint8_t> rest(data + sizeof(file_size), size - sizeof(file_size));
  const auto head =
      rest.first(std::min({std::uint64_t{rest.size()}, file_size, std::uint64_t{12}}));
  for (const auto format :
       {train::TokenFormat::kAuto, train::TokenFormat::kNanoGpt, train::TokenFormat::kLlmC}) {
    const auto layout = train::token_layout(head, file_size, format);
    if (!layout) {
      expect_presentable(layout.error());
      continue;
    }
    expect(layout->count > 0 && layout->offset % 2 == 0, "there are tokens, and they are aligned");
    expect(layout->offset + 2 * layout->count == file_size, "tokens go to the end of the file");
  }
  return 0;
}
