#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include <png.h>
#include <torchbridge/formats.h>
#include <turbojpeg.h>
#include <zlib.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

using FileBytes = std::span<const std::uint8_t>;

// No photograph has more. A small file whose header declares more would take all memory.
constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 28;

// What a library reports of an image: damage, but for what it does not support and a lack of
// memory.
Error library_error(const std::string& damage, std::string_view text) {
  constexpr std::string_view kNoDamage[] = {"Unsupported JPEG ", "Unsupported color ",
                                            "not implemented",   "nsufficient memory",
                                            "ut of memory",      "emory allocation"};
  const bool damaged = std::ranges::none_of(
      kNoDamage, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
  return Error{(damaged ? damage : "cannot be decoded: ") + printable(text)};
}

template <class Width>
Result<ImageSize> checked_size(Width width, Width height) {
  if (width <= 0 || height <= 0) return Error{"has a width or height of 0 in its header"};
  if (static_cast<std::uint64_t>(width) * static_cast<std::uint64_t>(height) > kMaxPixels) {
    return Error{
        formatted("has {}x{} pixels in its header, more than the limit of 2^28: the header is "
                  "damaged or the image is too large",
                  width, height)};
  }
  return ImageSize{static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)};
}

std::uint32_t big_endian(FileBytes bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | bytes[3];
}

// The name of the first chunk whose checksum differs, up to the end of the image data, as Pillow
// compares them; it does not compare those of the image data. Empty if there is none: libpng
// reports a file that ends too early.
std::string chunk_with_wrong_checksum(FileBytes file) {
  constexpr std::size_t kSignature = 8, kLength = 4, kType = 4, kChecksum = 4;
  bool has_image_data = false;
  for (FileBytes rest = file.subspan(kSignature); rest.size() >= kLength + kType + kChecksum;) {
    const std::size_t size = big_endian(rest);
    if (size > rest.size() - kLength - kType - kChecksum) break;
    const FileBytes checked = rest.subspan(kLength, kType + size);
    const std::string type(checked.begin(), checked.begin() + kType);
    if (has_image_data && type != "IDAT") break;
    has_image_data = type == "IDAT";
    rest = rest.subspan(kLength + checked.size());
    if (crc32_z(0, checked.data(), checked.size()) != big_endian(rest)) return type;
    rest = rest.subspan(kChecksum);
  }
  return {};
}

// libpng's simplified interface: no setjmp. Its warnings are about what surrounds the image:
// profiles, times, texts.
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
    if (const std::string chunk = chunk_with_wrong_checksum(file); !chunk.empty())
      return Error{formatted("is a damaged PNG file: {}: CRC error", printable(chunk))};
    image_.format = PNG_FORMAT_RGBA;
    std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(image_));
    if (!png_image_finish_read(&image_, nullptr, pixels.data(), 0, nullptr)) return error();
    Image image{*size, {}};
    image.pixels.resize(pixels.size() / 4 * 3);
    for (std::size_t from = 0, to = 0; from < pixels.size(); from += 4, to += 3) {
      std::copy_n(pixels.data() + from, 3, image.pixels.data() + to);
    }
    return image;
  }

 private:
  Error error() const { return library_error("is a damaged PNG file: ", image_.message); }

  png_image image_{};
};

// Whether a text of libjpeg-turbo is a warning (JWRN_ in its jerror.h). TurboJPEG tells no error
// from a warning where one came before it, but its text is the error's then.
bool is_jpeg_warning(std::string_view text) {
  constexpr std::string_view kWarnings[] = {
      "Corrupt JPEG data: ", "Warning: ", "Inconsistent progression sequence ",
      "Invalid SOS parameters for sequential JPEG", "Unknown Adobe color transform code "};
  return std::ranges::any_of(kWarnings,
                             [&](std::string_view start) { return text.starts_with(start); });
}

// Whether the end marker follows the first scan. In a scan 0xff is followed by 0 or a restart
// marker; an end marker before it is one of a thumbnail.
bool has_end_of_image(FileBytes file) {
  constexpr std::uint8_t kMarker = 0xff, kStartOfScan = 0xda, kEndOfImage[] = {kMarker, 0xd9};
  FileBytes rest = file.subspan(2);
  while (rest.size() >= 4 && rest[1] != kStartOfScan) {
    const std::size_t size = rest[0] != kMarker   ? 1
                             : rest[1] == kMarker ? 1
                                                  : 2 + (rest[2] << 8 | rest[3]);
    rest = rest.subspan(std::min(size, rest.size()));
  }
  // clang 14 does not take std::ranges::search of a span.
  return std::search(rest.begin(), rest.end(), std::begin(kEndOfImage), std::end(kEndOfImage)) !=
         rest.end();
}

// Such files hold the share of each ink that is missing, as Adobe's programs write them. Rounded as
// Pillow does.
void keep_rgb_of_cmyk(std::vector<std::uint8_t>& pixels) {
  constexpr int kAll = 255, kHalf = 128;
  std::size_t to = 0;
  for (std::size_t from = 0; from < pixels.size(); from += 4) {
    const int black = pixels[from + 3];
    for (std::size_t i = 0; i < 3; ++i) {
      const int ink = (kAll - pixels[from + i]) * black + kHalf;
      pixels[to++] = static_cast<std::uint8_t>(black - (((ink >> 8) + ink) >> 8));
    }
  }
  pixels.resize(to);
}

// Pillow ignores the warnings too, but for the end of the file before the end of the image.
class Jpeg {
 public:
  static bool fits(FileBytes file) {
    return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
  }

  Result<ImageSize> begin(FileBytes file) {
    int width = 0, height = 0, subsampling = 0, colours = 0;
    if (!handle_) return Error{"cannot be decoded: libjpeg-turbo cannot allocate memory"};
    const int result = tjDecompressHeader3(handle_.get(), file.data(), file.size(), &width, &height,
                                           &subsampling, &colours);
    // A sampling without a name in turbojpeg.h fails this call, but is decoded.
    const bool is_complete = width > 0 && height > 0 && colours >= 0;
    if (result != 0 && !is_complete && !is_jpeg_warning(tjGetErrorStr2(handle_.get())))
      return error();
    is_cmyk_ = colours == TJCS_CMYK || colours == TJCS_YCCK;
    return checked_size(width, height);
  }

  Result<Image> decode(FileBytes file) {
    const auto size = begin(file);
    if (!size) return size.error();
    if (!has_end_of_image(file))
      return Error{"is a damaged JPEG file: it ends before the end of the image"};
    Image image{*size, {}};
    image.pixels.resize(size->height * size->width * (is_cmyk_ ? 4 : 3));
    constexpr int kFlags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;
    if (tjDecompress2(handle_.get(), file.data(), file.size(), image.pixels.data(),
                      static_cast<int>(size->width), 0, static_cast<int>(size->height),
                      is_cmyk_ ? TJPF_CMYK : TJPF_RGB, kFlags) != 0 &&
        !is_jpeg_warning(tjGetErrorStr2(handle_.get()))) {
      return error();
    }
    if (is_cmyk_) keep_rgb_of_cmyk(image.pixels);
    return image;
  }

 private:
  struct Destroy {
    void operator()(void* handle) const { tjDestroy(handle); }
  };

  Error error() const {
    return library_error("is a damaged JPEG file: ", tjGetErrorStr2(handle_.get()));
  }

  std::unique_ptr<void, Destroy> handle_{tjInitDecompress()};
  bool is_cmyk_ = false;
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
