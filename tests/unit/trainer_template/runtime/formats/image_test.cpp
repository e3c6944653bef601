#include <cstdlib>
#include <map>

#include <torchbridge/formats.h>
#include <zlib.h>

#include "tests/support/image_files.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

using Pixels = std::vector<std::uint8_t>;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

const Pixels kRgb = {255, 0, 0, 0,   255, 0,   0,   0,   255,
                     1,   2, 3, 254, 253, 252, 128, 128, 128};  // 3x2

TEST(Image, DecodesPng) {
  const struct {
    png_uint_32 format;
    Pixels pixels, expected;
  } kCases[] = {
      {PNG_FORMAT_RGB, kRgb, kRgb},
      {PNG_FORMAT_GRAY,
       {0, 1, 2, 253, 254, 255},
       {0, 0, 0, 1, 1, 1, 2, 2, 2, 253, 253, 253, 254, 254, 254, 255, 255, 255}},
      {PNG_FORMAT_GA,
       {9, 255, 8, 255, 7, 255, 6, 255, 5, 255, 4, 255},
       {9, 9, 9, 8, 8, 8, 7, 7, 7, 6, 6, 6, 5, 5, 5, 4, 4, 4}},
      // The alpha channel is dropped, not blended.
      {PNG_FORMAT_RGBA,
       {10, 20, 30, 128, 1, 2, 3, 255, 1, 2, 3, 1, 1, 2, 3, 255, 1, 2, 3, 255, 1, 2, 3, 255},
       {10, 20, 30, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}},
  };
  for (const auto& c : kCases) {
    const std::string file = png_file(3, 2, c.format, c.pixels);
    EXPECT_EQ(*image_size(bytes_of(file)), (ImageSize{2, 3}));
    const auto image = decode_image(bytes_of(file));
    ASSERT_TRUE(image) << image.error().message;
    EXPECT_EQ(image->size, (ImageSize{2, 3}));
    EXPECT_EQ(image->pixels, c.expected);
  }
}

// A 16-bit value of 257 times an 8-bit value is the same colour.
TEST(Image, DecodesSixteenBitsWithoutGammaAsSrgb) {
  const std::vector<std::uint16_t> values = {0, 257, 257 * 77, 257 * 128, 257 * 254, 65535};
  const auto image = decode_image(bytes_of(gray_png_of_16_bits(3, 2, values)));
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ(image->pixels,
            (Pixels{0, 0, 0, 1, 1, 1, 77, 77, 77, 128, 128, 128, 254, 254, 254, 255, 255, 255}));
}

// JPEG is lossy: flat colours are decoded to within a few of 255.
TEST(Image, DecodesJpeg) {
  Pixels pixels;
  for (int i = 0; i < 16 * 8; ++i) pixels.insert(pixels.end(), {200, 100, 50});
  const std::string colour = jpeg_file(16, 8, TJPF_RGB, pixels),
                    gray = jpeg_file(16, 8, TJPF_GRAY, Pixels(16 * 8, 77));
  EXPECT_EQ(*image_size(bytes_of(colour)), (ImageSize{8, 16}));
  const auto image = decode_image(bytes_of(colour));
  ASSERT_TRUE(image) << image.error().message;
  ASSERT_EQ(image->pixels.size(), pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i)
    EXPECT_LE(std::abs(image->pixels[i] - pixels[i]), 3);
  const auto flat = decode_image(bytes_of(gray));
  ASSERT_TRUE(flat) << flat.error().message;
  for (const auto value : flat->pixels) EXPECT_LE(std::abs(value - 77), 2);
}

// The files beside these are Pillow's pixels. The JPEG files are from cjpeg -sample: 4x2 is
// 4x2,1x1,1x1.
TEST(Image, DecodesUnusualSamplingOfJpegAsPillowDoes) {
  for (const std::string name : {"4x2", "1x4", "3x1", "cb2x2"}) {
    const std::string path = in_source("tests/data/images") + "/sampling-" + name;
    const MappedFile jpeg(path + ".jpg"), png(path + ".png");
    const auto size = image_size(jpeg.bytes());
    ASSERT_TRUE(size) << name << ": " << size.error().message;
    EXPECT_EQ(*size, (ImageSize{9, 13})) << name;
    const auto image = decode_image(jpeg.bytes()), expected = decode_image(png.bytes());
    ASSERT_TRUE(image && expected) << name;
    ASSERT_EQ(image->pixels.size(), expected->pixels.size()) << name;
    for (std::size_t i = 0; i < image->pixels.size(); ++i)
      ASSERT_LE(std::abs(image->pixels[i] - expected->pixels[i]), 2) << name << ", value " << i;
  }
}

// What is missing of each ink, of black last: Pillow makes (207, 46, 190) of these.
TEST(Image, DecodesCmykAsPillowDoes) {
  Pixels pixels;
  for (int i = 0; i < 16 * 8; ++i) pixels.insert(pixels.end(), {245, 55, 225, 215});
  const std::string file = jpeg_file(16, 8, TJPF_CMYK, pixels);
  EXPECT_EQ(*image_size(bytes_of(file)), (ImageSize{8, 16}));
  const auto image = decode_image(bytes_of(file));
  ASSERT_TRUE(image) << image.error().message;
  ASSERT_EQ(image->pixels.size(), 16u * 8 * 3);
  const int expected[] = {207, 46, 190};
  for (std::size_t i = 0; i < image->pixels.size(); ++i)
    EXPECT_LE(std::abs(image->pixels[i] - expected[i % 3]), 3);
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  return big_endian(data.size()) + checked +
         big_endian(crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size()));
}

std::string behind_header(std::string png, const std::string& chunk) {
  constexpr std::size_t kSignatureAndHeader = 8 + 25;
  return png.insert(kSignatureAndHeader, chunk);
}

// What libpng and libjpeg-turbo warn about, but Pillow does not.
TEST(Image, DecodesFilesWhoseImageIsNotDamaged) {
  const std::string png = png_file(3, 2, PNG_FORMAT_RGB, kRgb),
                    gray = png_file(3, 2, PNG_FORMAT_GRAY, Pixels(6, 77)),
                    jpeg = jpeg_file(3, 2, TJPF_RGB, kRgb), end = "\xff\xd9";
  std::string old_jfif = jpeg, extraneous = jpeg, thumbnail = jpeg, texts;
  for (int i = 0; i < 1100; ++i) texts += chunk("tEXt", std::string("key\0value", 9));
  old_jfif.replace(jpeg.find("JFIF") + 5, 2, 2, '\0');
  extraneous.insert(jpeg.size() - end.size(), "\1\2\3");
  thumbnail.insert(2, "\xff\xe1" + big_endian(2 + jpeg.size()).substr(2) + jpeg);
  // A profile's header of 128 bytes, for RGB.
  const std::string profile =
      big_endian(128) + std::string("lcms\2\0\0\0mntrRGB XYZ ", 20) + std::string(104, '\0');
  Bytef packed[256];
  uLongf size = sizeof packed;
  ASSERT_EQ(compress(packed, &size, reinterpret_cast<const Bytef*>(profile.data()), profile.size()),
            Z_OK);
  const std::string iccp =
      chunk("iCCP",
            std::string("sRGB\0\0", 6) + std::string(reinterpret_cast<const char*>(packed), size));
  const std::map<std::string, std::string> kCases = {
      {"a damaged profile", behind_header(png, iccp)},
      {"a gray image with a profile for RGB", behind_header(gray, iccp)},
      {"chromaticities outside of all colours",
       behind_header(png, chunk("cHRM", std::string(32, '\7')))},
      {"month 13", behind_header(png, chunk("tIME", std::string("\7\xe4\15\50\36\106\106")))},
      {"a chunk of a wrong length", behind_header(png, chunk("bKGD", "1"))},
      {"1,100 texts", behind_header(png, texts)},
      {"bytes behind the end", png + "abc"},
      {"a wrong checksum behind the image", png.substr(0, png.size() - 4) + "abcd"},
      {"JFIF revision 0.00", old_jfif},
      {"bytes before the end marker", extraneous},
      {"a thumbnail", thumbnail},
      {"bytes behind the end marker", jpeg + "abc"},
  };
  for (const auto& [what, file] : kCases) {
    const auto image = decode_image(bytes_of(file));
    ASSERT_TRUE(image) << what << ": " << image.error().message;
    EXPECT_EQ(image->size, (ImageSize{2, 3})) << what;
    const std::string& plain = file.starts_with(end.substr(0, 1)) ? jpeg
                               : what.starts_with("a gray")       ? gray
                                                                  : png;
    EXPECT_EQ(image->pixels, decode_image(bytes_of(plain))->pixels) << what;
  }
}

TEST(Image, RejectsMalformedFiles) {
  const std::string png = png_file(3, 2, PNG_FORMAT_RGB, kRgb),
                    jpeg = jpeg_file(3, 2, TJPF_RGB, kRgb);
  std::string wrong_checksum = png, endless = png, lossless = jpeg, twelve_bits = jpeg,
              wrong_gamma = behind_header(png, chunk("gAMA", big_endian(1))), thumbnail = jpeg;
  wrong_gamma[8 + 25 + 8] = 1;
  thumbnail.insert(2, "\xff\xe1" + big_endian(2 + jpeg.size()).substr(2) + jpeg);
  wrong_checksum[45] = static_cast<char>(wrong_checksum[45] ^ 1);
  endless.replace(16, 8, std::string("\x7f\xff\xff\xff\x7f\xff\xff\xff"));
  const std::size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  lossless[frame + 1] = '\xc3';
  twelve_bits[frame + 4] = 12;
  const struct {
    std::string file, expected;
  } kCases[] = {
      {lossless, "cannot be decoded: Unsupported JPEG process"},
      {twelve_bits, "cannot be decoded: Unsupported JPEG data precision 12"},
      {"", "byte 0: expected the signature of a PNG or JPEG file"},
      {"GIF89a", "byte 0: expected the signature"},
      {png.substr(0, 20), "is a damaged PNG file"},
      {png.substr(0, png.size() - 20), "is a damaged PNG file"},
      {wrong_checksum, "is a damaged PNG file"},
      {wrong_gamma, "is a damaged PNG file: gAMA: CRC error"},
      {endless, "damaged"},
      {jpeg.substr(0, 30), "has a width or height of 0 in its header"},
      {jpeg.substr(0, jpeg.size() - 8),
       "is a damaged JPEG file: it ends before the end of the image"},
      {jpeg.substr(0, jpeg.size() - 2),
       "is a damaged JPEG file: it ends before the end of the image"},
      {thumbnail.substr(0, thumbnail.size() - 2),
       "is a damaged JPEG file: it ends before the end of the image"},
      {jpeg.substr(0, jpeg.find("\xff\xda") + 2) + jpeg.substr(jpeg.size() - 60),
       "is a damaged JPEG file"},
  };
  for (const auto& c : kCases) {
    const auto image = decode_image(bytes_of(c.file));
    ASSERT_FALSE(image) << c.expected;
    EXPECT_TRUE(contains(image.error().message, c.expected));
  }
}

}  // namespace
}  // namespace torchbridge::train
