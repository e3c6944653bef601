// Image files made by libpng and libjpeg-turbo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

// Pixels as png.h's `format` says, for instance PNG_FORMAT_RGB.
inline std::string png_file(int width, int height, png_uint_32 format,
                            const std::vector<std::uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = format;
  std::string bytes(1 << 16, '\0');
  png_alloc_size_t size = bytes.size();
  EXPECT_TRUE(png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr))
      << image.message;
  bytes.resize(size);
  return bytes;
}

// Without a chunk that tells the gamma.
inline std::string gray_png_of_16_bits(png_uint_32 width, png_uint_32 height,
                                       const std::vector<std::uint16_t>& values) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  const auto append = [](png_structp writer, png_bytep data, std::size_t size) {
    static_cast<std::string*>(png_get_io_ptr(writer))
        ->append(reinterpret_cast<const char*>(data), size);
  };
  png_set_write_fn(png, &bytes, append, [](png_structp) {});
  png_set_IHDR(png, info, width, height, 16, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_set_swap(png);  // the file has the higher byte first
  for (png_uint_32 row = 0; row < height; ++row)
    png_write_row(png, reinterpret_cast<png_const_bytep>(values.data() + row * width));
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// `format` is turbojpeg.h's, for instance TJPF_RGB.
inline std::string jpeg_file(int width, int height, int format,
                             const std::vector<std::uint8_t>& pixels) {
  tjhandle handle = tjInitCompress();
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  const int subsampling = format == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444;
  EXPECT_EQ(tjCompress2(handle, pixels.data(), width, 0, height, format, &memory, &size,
                        subsampling, 95, 0),
            0);
  const std::string bytes(reinterpret_cast<const char*>(memory), size);
  tjFree(memory);
  tjDestroy(handle);
  return bytes;
}
