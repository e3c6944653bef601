// Image files: whatever the bytes, an image has the pixels that it says, or there is an error.
#include <torchbridge/formats.h>

#include "tests/fuzz/programs/expect.h"

using namespace torchbridge;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kMaxPixels = 1 << 20;  // more are right, and slow
  const std::span<const std::uint8_t> file(data, size);
  const auto dimensions = train::image_size(file);
  if (!dimensions) {
    expect_presentable(dimensions.error());
    return 0;
  }
  expect(dimensions->height > 0 && dimensions->width > 0, "an image has pixels");
  if (dimensions->height * dimensions->width > kMaxPixels) return 0;
  const auto image = train::decode_image(file);
  if (!image) {
    expect_presentable(image.error());
    return 0;
  }
  expect(image->size == *dimensions, "the header said the size");
  expect(std::ssize(image->pixels) == 3 * image->size.height * image->size.width,
         "three bytes a pixel");
  return 0;
}
