#include "trainer_template/runtime/formats/token_file.h"

#include <fcntl.h>

#include <map>

#include <torchbridge/errors.h>

#include "tests/support/temporary_folder.h"
#include "tests/support/token_files.h"

namespace torchbridge::train {
namespace {

constexpr std::uint32_t kMagic = 20240520;

std::vector<std::uint16_t> tokens_of(const TokenFile& file) {
  return {file.tokens().begin(), file.tokens().end()};
}

TEST(TokenFile, ReadsNanoGptAndLlmC) {
  const std::vector<std::uint16_t> tokens = {1, 0, 50256, 65535, 300};
  TemporaryFolder folder;
  folder.write("raw.bin", token_bytes(tokens));
  folder.write("header.bin", llm_c_header(kMagic, 1, 5) + token_bytes(tokens));
  const TokenFile raw(folder / "raw.bin"), with_header(folder / "header.bin");
  EXPECT_EQ(tokens_of(raw), tokens);
  EXPECT_EQ(tokens_of(with_header), tokens);
  EXPECT_EQ(raw.byte_of(3), 6u);
  EXPECT_EQ(with_header.byte_of(3), 1030u);
}

TEST(TokenFile, AcceptsAnExplicitFormat) {
  const std::string bytes = llm_c_header(kMagic, 1, 1) + token_bytes({7});
  TemporaryFolder folder;
  folder.write("tokens.bin", bytes);
  EXPECT_EQ(TokenFile(folder / "tokens.bin", TokenFormat::kNanoGpt).tokens().size(),
            bytes.size() / 2);
  folder.write("raw.bin", std::string(2000, 'x'));
  EXPECT_TRUE(contains(error_of([&] { TokenFile(folder / "raw.bin", TokenFormat::kLlmC); }),
                       "expected 20240520"));
}

TEST(TokenFile, NamesFileOffsetAndExpectation) {
  const struct {
    std::string bytes, expected;
  } kCases[] = {
      {"", "is empty"},
      {"abc", "ends at byte 3, within a token: expected two bytes each"},
      {llm_c_header(kMagic, 1, 2).substr(0, 100),
       "ends at byte 100, within the header of 1024 bytes"},
      {llm_c_header(kMagic, 2, 2) + "abcd", "byte 4: version 2, expected 1"},
      {llm_c_header(kMagic, 1, 0), "byte 8: number of tokens 0, expected at least 1"},
      {llm_c_header(kMagic, 1, 3) + "abcd",
       "byte 8: number of tokens 3, expected a file of 1030 bytes for it, but the file has 1028"},
      {llm_c_header(kMagic, 1, 1) + "abcd", "a file of 1026 bytes for it, but the file has 1028"},
      {llm_c_header(kMagic, 1, 0xffffffff) + "abcd", "a file of 8589935614 bytes"},
      {llm_c_header(20240801, 7, 1) + "abcd", "tokens of four bytes (Llama 3) are not supported"},
  };
  for (const auto& c : kCases) {
    TemporaryFolder folder;
    folder.write("tokens.bin", c.bytes);
    const std::string message = error_of([&] { TokenFile(folder / "tokens.bin"); });
    EXPECT_TRUE(contains(message, (folder / "tokens.bin").string() + ": "));
    EXPECT_TRUE(contains(message, c.expected));
  }
}

TEST(TokenFile, NoticesTokensOfOtherWidths) {
  const std::string text = "In the beginning God created the heaven and the earth.\n";
  std::string one, two, four, eight, large, bits;
  std::map<int, std::string> behind = {{255, ""}, {256, ""}, {1000, ""}, {1024, ""}};
  for (int i = 0; i < 3000; ++i) {
    const int token = i * 7919 % 50257;
    const std::string bytes = {static_cast<char>(token & 0xff), static_cast<char>(token >> 8)};
    one += static_cast<char>('a' + token % 26);
    two += bytes;
    four += bytes + std::string(2, '\0');
    eight += bytes + std::string(6, '\0');
    large += bytes + std::string{static_cast<char>(i % 4), '\0'};
    // A text's bytes behind reserved ids.
    for (auto& [offset, all] : behind) {
      const int id = text[static_cast<std::size_t>(i) % text.size()] + offset;
      all += {static_cast<char>(id & 0xff), static_cast<char>(id >> 8)};
    }
    bits += {static_cast<char>(i % 5 == 0), '\0'};
  }
  const struct {
    std::string bytes, expected;
  } kCases[] = {
      {two, ""},
      {std::string(6000, '\0'), ""},
      {one, "holds tokens of one byte, expected two bytes each: write them as numpy.uint16"},
      {four, "holds tokens of four bytes"},
      {eight, "holds tokens of eight bytes"},
      {large, "holds tokens of four bytes"},
      {behind[255], ""},
      {behind[256], ""},
      {behind[1000], ""},
      {behind[1024], ""},
      {bits, ""},
      {"\x93NUMPY\1\2" + two, "is a NumPy file (.npy), expected the tokens alone"},
  };
  for (const auto& c : kCases) {
    TemporaryFolder folder;
    folder.write("tokens.bin", c.bytes);
    const std::string message = error_of([&] { TokenFile(folder / "tokens.bin"); });
    EXPECT_TRUE(c.expected.empty() ? message.empty() : contains(message, c.expected)) << message;
    TokenFile(folder / "tokens.bin", TokenFormat::kNanoGpt);
  }
}

// A sparse file, which uses no space on the disk.
TEST(TokenFile, MapsMoreThanTwoGibibytes) {
  constexpr std::int64_t kTokens = (std::int64_t{3} << 30) / 2;
  TemporaryFolder folder;
  folder.write("large.bin", llm_c_header(kMagic, 1, kTokens));
  std::filesystem::resize_file(folder / "large.bin", 1024 + 2 * kTokens);
  {
    std::fstream file(folder / "large.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1024 + 2 * (kTokens - 1));
    file.write("\x39\x30", 2);
  }
  const TokenFile file(folder / "large.bin");
  ASSERT_EQ(std::ssize(file.tokens()), kTokens);
  EXPECT_EQ(file.tokens()[kTokens - 1], 12345);
  EXPECT_EQ(file.tokens()[kTokens / 2], 0);
}

}  // namespace
}  // namespace torchbridge::train
