#include "trainer_template/runtime/formats/image.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include <png.h>
#include <turbojpeg.h>

#include "bridge/base/env_map.h"

namespace torchbridge::train {
namespace {

using FileBytes = std::span<const std::uint8_t>;

// No photograph has more. A small file whose header declares more would take all memory.
constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 28;

template <class Width>
Result<ImageSize> checked_size(Width width, Width height) {
  if (width <= 0 || height <= 0) return Error{"has a width or height of 0 in its header"};
  if (static_cast<std::uint64_t>(width) * static_cast<std::uint64_t>(height) > kMaxPixels) {
    return Error{"has " + std::to_string(width) + "x" + std::to_string(height) +
                 " pixels in its header, more than the limit of 2^28: the header is damaged or the image is too large"};
  }
  return ImageSize{static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)};
}

// libpng's simplified interface: no setjmp.
class Png {
 public:
  static bool fits(FileBytes file) {
    return file.size() >= 8 && png_sig_cmp(const_cast<png_bytep>(file.data()), 0, 8) == 0;
  }

  Png() { image_.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&image_); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  Result<ImageSize> begin(FileBytes file) {
    if (!png_image_begin_read_from_memory(&image_, file.data(), file.size())) return error();
    // Without the flag libpng takes 16-bit samples of a file without a gamma for linear light.
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    return checked_size(image_.width, image_.height);
  }

  Result<Image> decode(FileBytes file) {
    const auto size = begin(file);
    if (!size) return size.error();
    image_.format = PNG_FORMAT_RGBA;
    std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(image_));
    if (!png_image_finish_read(&image_, nullptr, pixels.data(), 0, nullptr)) return error();
    if (image_.warning_or_error != 0) return error();
    Image image{*size, {}};
    image.pixels.resize(pixels.size() / 4 * 3);
    for (std::size_t from = 0, to = 0; from < pixels.size(); from += 4, to += 3) {
      std::copy_n(pixels.data() + from, 3, image.pixels.data() + to);
    }
    return image;
  }

 private:
  Error error() const { return Error{"is a damaged PNG file: " + printable(image_.message)}; }

  png_image image_{};
};

class Jpeg {
 public:
  static bool fits(FileBytes file) { return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff; }

  Result<ImageSize> begin(FileBytes file) {
    int width = 0, height = 0, subsampling = 0, colours = 0;
    if (!handle_) return Error{"cannot be decoded: libjpeg-turbo cannot allocate memory"};
    if (tjDecompressHeader3(handle_.get(), file.data(), file.size(), &width, &height, &subsampling, &colours) != 0)
      return error();
    if (colours == TJCS_CMYK || colours == TJCS_YCCK) return Error{"is a JPEG file in CMYK, expected RGB or gray"};
    return checked_size(width, height);
  }

  Result<Image> decode(FileBytes file) {
    const auto size = begin(file);
    if (!size) return size.error();
    Image image{*size, {}};
    image.pixels.resize(size->height * size->width * 3);
    constexpr int kFlags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
    if (tjDecompress2(handle_.get(), file.data(), file.size(), image.pixels.data(), static_cast<int>(size->width), 0,
                      static_cast<int>(size->height), TJPF_RGB, kFlags) != 0) {
      return error();
    }
    return image;
  }

 private:
  struct Destroy {
    void operator()(void* handle) const { tjDestroy(handle); }
  };

  Error error() const { return Error{"is a damaged JPEG file: " + printable(tjGetErrorStr2(handle_.get()))}; }

  std::unique_ptr<void, Destroy> handle_{tjInitDecompress()};
};

Error unknown_format() { return Error{"byte 0: expected the signature of a PNG or JPEG file"}; }

}  // namespace

Result<ImageSize> image_size(FileBytes file) {
  if (Png::fits(file)) return Png().begin(file);
  if (Jpeg::fits(file)) return Jpeg().begin(file);
  return unknown_format();
}

Result<Image> decode_image(FileBytes file) {
  if (Png::fits(file)) return Png().decode(file);
  if (Jpeg::fits(file)) return Jpeg().decode(file);
  return unknown_format();
}

}  // namespace torchbridge::train
