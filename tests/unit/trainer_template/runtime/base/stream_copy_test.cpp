#include "trainer_template/runtime/base/stream_copy.h"

#include <string>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

TEST(StreamCopy, CopiesExactlyTheRangeAtAnyAlignment) {
  constexpr std::size_t kMost = 300, kMargin = 64;
  std::string source(kMost + kMargin, '\0');
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(1 + i * 31 % 255);
  for (std::size_t from = 0; from < kMargin; from += 7) {
    for (std::size_t to = 0; to < kMargin; ++to) {
      for (std::size_t size = 0; size <= kMost; size += size < 130 ? 1 : 17) {
        std::string target(kMost + 2 * kMargin, '\0'), expected = target;
        stream_copy(std::string_view(source).substr(from, size), target.data() + to);
        expected.replace(to, size, source, from, size);
        ASSERT_EQ(target, expected) << size << " bytes from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace torchbridge::train
