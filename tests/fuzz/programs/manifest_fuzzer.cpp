// Manifests of checkpoints: what is accepted is within its bounds, and written and read again it is
// the same.
#include "tests/fuzz/programs/expect.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"

using namespace torchbridge;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = train::manifest_from_json(text_of(data, size));
  if (!manifest) {
    expect_presentable(manifest.error());
    return 0;
  }
  expect(manifest->state.step >= 0 && manifest->state.position.epoch >= 0 &&
             manifest->state.position.consumed >= 0 && manifest->world_size >= 1,
         "a place in training");
  for (const auto& file : manifest->files) {
    std::uint64_t covered = 0;
    for (const auto& part : file.parts) covered += part.size;
    expect(file.parts.empty() ? !file.xxh3.empty() : covered == file.size,
           "a checksum for every byte");
    expect(
        !file.name.empty() && file.name.find('/') == std::string::npos && file.name.front() != '.',
        "files of the folder");
  }
  const std::string text = train::to_json(*manifest);
  expect(train::has_valid_checksum(text) && !train::has_valid_checksum(text_of(data, size)),
         "what was written has a seal, and nobody guesses one");
  const auto again = train::manifest_from_json(text);
  expect(again && *again == *manifest, "written and read it is the same");
  return 0;
}
