// Image files made by libpng and libjpeg-turbo.
#pragma once

#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

#include <cstdint>
#include <string>
#include <vector>

// Pixels as png.h's `format` says, for instance PNG_FORMAT_RGB.
inline std::string png_file(int width, int height, png_uint_32 format, const std::vector<std::uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = format;
  std::string bytes(1 << 16, '\0');
  png_alloc_size_t size = bytes.size();
  EXPECT_TRUE(png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr)) << image.message;
  bytes.resize(size);
  return bytes;
}

// `format` is turbojpeg.h's, for instance TJPF_RGB.
inline std::string jpeg_file(int width, int height, int format, const std::vector<std::uint8_t>& pixels) {
  tjhandle handle = tjInitCompress();
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  const int subsampling = format == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444;
  EXPECT_EQ(tjCompress2(handle, pixels.data(), width, 0, height, format, &memory, &size, subsampling, 95, 0), 0);
  const std::string bytes(reinterpret_cast<const char*>(memory), size);
  tjFree(memory);
  tjDestroy(handle);
  return bytes;
}
