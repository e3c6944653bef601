#include "bridge/host/text_file.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

TEST(TextFile, IsReadWithoutTheNewlinesAtItsEnd) {
  const TemporaryFolder folder;
  folder.write("file", "a\nb\n\n");
  EXPECT_EQ(read_text(folder / "file")->value_or(""), "a\nb");
  EXPECT_FALSE(read_text(folder / "missing")->has_value());
}

TEST(TextFile, ThatIsTooLongIsAnError) {
  const TemporaryFolder folder;
  folder.write("file", std::string(70'000, 'x'));
  EXPECT_FALSE(read_text(folder / "file"));
}

// As an image may have below a path of the kernel's.
TEST(TextFile, ThatIsAFifoIsNotWaitedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_text(folder / "fifo")->value_or("none"), "");
}

}  // namespace
