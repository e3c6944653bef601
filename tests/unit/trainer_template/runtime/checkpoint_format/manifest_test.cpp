#include "trainer_template/runtime/checkpoint_format/manifest.h"

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

Manifest example() {
  return {.state = {.run = "a1b2c3d4",
                    .step = 100,
                    .position = {.epoch = 3, .consumed = 1234},
                    .samples_seen = 12345678901,
                    .train_set = "00112233445566778899aabbccddeeff",
                    .names = {{"cat", "dog"}, {"a", "b"}},
                    .buckets = {{3, 2}, {1, 0}},
                    .parts = {{"plateau.bad", 1}, {"step_scale.each", 4.0 / 3}, {"skips", 2}}},
          .world_size = 4,
          .seed = 18446744073709551615u,
          .options = {{"lr", "0.1"}, {"data", "/with \"quotes\" and \xff"}},
          .versions = {{"torch", "2.11.0"}},
          .files = {{"model.safetensors", 1234, "0123456789abcdef0123456789abcdef"}}};
}

TEST(Manifest, ReadsBackWhatItWrites) {
  Manifest manifest = example();
  manifest.options = {{"lr", "0.1"}, {"data", "/with \"quotes\""}};
  const auto read = manifest_from_json(to_json(manifest));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, manifest);
}

// As earlier versions wrote it, and without a seed as torchbridge.convert does.
TEST(Manifest, IsReadWithoutAFingerprintARunOrASeed) {
  Manifest manifest = example();
  manifest.seed.reset();
  manifest.state.train_set.clear();
  manifest.state.names = {};
  manifest.state.run.clear();
  const std::string text = to_json(manifest);
  EXPECT_EQ(text.find("fingerprint"), std::string::npos);
  EXPECT_EQ(text.find("\"run\""), std::string::npos);
  const auto read = manifest_from_json(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->state.train_set, "");
  EXPECT_EQ(read->state.names, DataNames());
  EXPECT_EQ(read->state.run, "");
  EXPECT_EQ(read->seed, std::nullopt);
}

TEST(Manifest, WritesOptionsThatAreNotUtf8) { EXPECT_TRUE(manifest_from_json(to_json(example()))); }

TEST(Manifest, RejectsInvalidManifests) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = to_json(example());
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const struct {
    std::string text, expected;
  } kCases[] = {
      {"", "is invalid"},
      {"[]", "is invalid"},
      {"{}", "is invalid"},
      {changed("\"version\": 2", "\"version\": 1"), "has format version 1, this program reads 2"},
      {changed("torchbridge-checkpoint", "other"), "is not a checkpoint's manifest"},
      {changed("\"step\": 100", "\"step\": -1"), "has a negative position or a world size below 1"},
      {changed("\"step\": 100", "\"step\": \"x\""), "is invalid"},
      {changed("\"00112233445566778899aabbccddeeff\"", "3"), "is invalid"},
      {changed("\"world_size\": 4", "\"world_size\": 0"),
       "has a negative position or a world size below 1"},
      {changed("\"world_size\": 4", "\"world_size\": 4294967297"),
       "it has 4294967297 where an integer in the range of its type is expected"},
      {changed("\"world_size\": 4", "\"world_size\": 1.1e57"), "it has 1.1e+57 where"},
      {changed("\"step\": 100", "\"step\": 18446744073709551615"),
       "it has 18446744073709551615 where"},
      {changed("\"step\": 100", "\"step\": 1.5"), "it has 1.5 where"},
      {changed("\"size\": 1234", "\"size\": -1"), "it has -1 where"},
      {changed("model.safetensors", "../model.safetensors"), "names a file outside of its folder"},
      {changed("model.safetensors", "/etc/passwd"), "names a file outside of its folder"},
      {changed("\"size\": 1234", "\"size\": 0, \"parts\": [[4, \"00\"]]"),
       "has parts that are longer than 'model.safetensors'"},
      {changed("\"size\": 1234", "\"size\": 5, \"parts\": [[4, \"00\"]]"),
       "has no checksum for every byte of 'model.safetensors'"},
      {changed("\"plateau.bad\": 1.0", "\"plateau.bad\": \"1\""), "is invalid"},
      {to_json(example()).substr(0, 100), "is invalid"},
  };
  for (const auto& c : kCases) {
    const auto read = manifest_from_json(c.text);
    ASSERT_FALSE(read) << c.text;
    EXPECT_TRUE(contains(read.error().message, c.expected));
  }
}

}  // namespace
}  // namespace torchbridge::train
