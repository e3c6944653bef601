// Manifests of checkpoints: what is accepted is within its bounds, and written and read again it is the same.
#include <torchbridge/train/checkpoint/manifest.h>

#include "expect.h"

using namespace torchbridge;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = train::manifest_from_json(text_of(data, size));
  if (!manifest) {
    expect_presentable(manifest.error());
    return 0;
  }
  expect(manifest->step >= 0 && manifest->position.epoch >= 0 && manifest->position.consumed >= 0 && manifest->world_size >= 1, "a place in training");
  for (const auto& file : manifest->files) {
    expect(!file.name.empty() && file.name.find('/') == std::string::npos && file.name.front() != '.', "files of the folder");
  }
  const auto again = train::manifest_from_json(train::to_json(*manifest));
  expect(again && *again == *manifest, "written and read it is the same");
  return 0;
}
