#include "trainer_template/runtime/checkpoint_format/read_file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kBlock = 1 << 20;  // of read_file.cpp

std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, size - i));
  }
  return bytes;
}

class ReadFiles : public testing::Test {
 protected:
  std::filesystem::path path() const { return folder_ / "file"; }

  TemporaryFolder folder_;
};

TEST_F(ReadFiles, FillsOnlyTheRequestedRange) {
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4095}, std::uint64_t{4096},
                                   std::uint64_t{12'289}, 2 * kBlock + 5}) {
    const std::string content = random_bytes(size);
    folder_.write("file", content);
    const std::vector<std::uint64_t> marks = {
        0, 1, 4095, 4096, 4097, 8192, size / 2, kBlock - 1, kBlock, kBlock + 1, size - 1, size};
    for (const std::uint64_t begin : marks) {
      for (const std::uint64_t end : marks) {
        if (begin >= end || end > size) continue;
        FileImage image(size);
        std::fill_n(image.data(), size, '#');
        std::string taken;
        EXPECT_TRUE(ReadFile(path()).read_into(image, begin, end, [&](std::string_view bytes) {
          return !taken.append(bytes).empty();
        }));
        EXPECT_TRUE(taken == content.substr(begin, end - begin))
            << begin << " to " << end << " of " << size;
        const std::string expected = std::string(begin, '#') + taken + std::string(size - end, '#');
        EXPECT_TRUE(image.bytes() == expected) << begin << " to " << end << " of " << size;
      }
    }
  }
}

TEST_F(ReadFiles, StopsWhenTheCallbackReturnsFalse) {
  folder_.write("file", random_bytes(3 * kBlock));
  FileImage image(3 * kBlock);
  int blocks = 0;
  EXPECT_TRUE(ReadFile(path()).read_into(image, 0, image.size(),
                                         [&](std::string_view) { return ++blocks < 2; }));
  EXPECT_EQ(blocks, 2);
}

TEST_F(ReadFiles, ReportsATruncatedFile) {
  folder_.write("file", random_bytes(20'000));
  const ReadFile file(path());
  std::filesystem::resize_file(path(), 10'000);
  FileImage image(20'000);
  EXPECT_FALSE(file.read_into(image, 0, 20'000, [](std::string_view) { return true; }));
  EXPECT_FALSE(file.read(0, 20'000, [](std::string_view) { return true; }));
}

TEST(ReadFile, ThrowsIfTheFileIsNotAtFault) {
  TemporaryFolder folder;
  folder.write("file", "x");
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = dup(0);
  close(next);
  const rlimit none_left{static_cast<rlim_t>(next), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none_left);
  const std::string error = error_of([&] { ReadFile(folder / "file"); });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(error, "cannot open '" + (folder / "file").string() + "': Too many open files");
  EXPECT_EQ(std::string(ReadFile(folder / "none").error()), "is missing or cannot be read");
}

}  // namespace
}  // namespace torchbridge::train
