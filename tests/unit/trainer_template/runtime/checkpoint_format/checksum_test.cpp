#include "trainer_template/runtime/checkpoint_format/checksum.h"

#include <vector>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

std::string fingerprint(const std::vector<std::string>& texts) {
  std::vector<std::span<const std::byte>> pieces;
  for (const std::string& text : texts) pieces.push_back(std::as_bytes(std::span(text)));
  return fingerprint_of(pieces);
}

TEST(Fingerprint, IsOfSizesAndBytes) {
  EXPECT_EQ(fingerprint({}), "");
  EXPECT_EQ(fingerprint({"abc", ""}), checksum_of("3\n0\nabc"));
  EXPECT_NE(fingerprint({"abc"}), fingerprint({"abd"}));
  EXPECT_NE(fingerprint({"a", "bc"}), fingerprint({"ab", "c"}));
}

// 80 MiB in two pieces: only some blocks are read.
TEST(Fingerprint, OfManyBytesSamplesFromTheFirstToTheLast) {
  std::vector<std::string> pieces = {std::string(30 << 20, 'a'), std::string(50 << 20, 'b')};
  const std::string before = fingerprint(pieces);
  const auto differs_at = [&](std::size_t piece, std::size_t place, std::size_t count) {
    std::string& bytes = pieces[piece];
    const std::string kept = bytes.substr(place, count);
    bytes.replace(place, count, count, 'x');
    const bool differs = fingerprint(pieces) != before;
    bytes.replace(place, count, kept);
    return differs;
  };
  EXPECT_EQ(fingerprint(pieces), before);
  EXPECT_TRUE(differs_at(0, 0, 1));
  EXPECT_TRUE(differs_at(1, pieces[1].size() - 1, 1));
  constexpr std::size_t kStretch = 400'000;  // more than from one block to the next
  for (std::size_t place = 0; place + kStretch <= pieces[0].size(); place += 7 * kStretch)
    EXPECT_TRUE(differs_at(0, place, kStretch)) << place;
  for (std::size_t place = 0; place + kStretch <= pieces[1].size(); place += 7 * kStretch)
    EXPECT_TRUE(differs_at(1, place, kStretch)) << place;
}

}  // namespace
}  // namespace torchbridge::train
