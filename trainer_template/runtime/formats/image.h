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

// The first bytes of `file` decide between the two formats. Errors: another format, a damaged header, more than 2^28
// pixels.
Result<ImageSize> image_size(std::span<const std::uint8_t> file);

// Every image becomes RGB: gray images get three equal values, and transparency is dropped, as by Pillow's
// convert("RGB"). Pixels are sRGB: a PNG file with another gamma is converted. Errors: those of image_size(), and every
// warning or error of libpng and libjpeg-turbo, such as damaged or incomplete data.
Result<Image> decode_image(std::span<const std::uint8_t> file);

}  // namespace torchbridge::train
