// PNG and JPEG files, decoded by libpng and libjpeg-turbo.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

struct ImageSize {
  std::int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

struct Image {
  ImageSize size;
  std::vector<std::uint8_t> pixels;  // row by row; red, green, blue of a pixel
};

// Which of the two formats it is, its bytes say. Errors: another format, a damaged header, more than 2^28 pixels.
Result<ImageSize> image_size(std::span<const std::uint8_t> file);

// All images become RGB: gray ones with three equal values; transparency is left out, as Pillow's convert("RGB") does.
// Pixels are sRGB: a PNG file that says that it has another gamma is converted. Errors: those of image_size, and what
// libpng and libjpeg-turbo warn of or fail at, damaged and incomplete data among it.
Result<Image> decode_image(std::span<const std::uint8_t> file);

}  // namespace torchbridge::train
