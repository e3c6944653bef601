// The files from which data sets are read: tables, images, texts and tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

enum class Links { kFollowed, kRejected };

// A file mapped into memory: its bytes are read from the disk when they are accessed. Uses address
// space, not memory: the file may be larger than the memory. It must not shrink while it is mapped:
// access to bytes that no longer exist ends the process with SIGBUS. Any thread.
class MappedFile {
 public:
  // Throws TrainError, which names the file, unless it is a readable regular file that is not
  // empty.
  explicit MappedFile(const std::filesystem::path& path, Links links = Links::kFollowed);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Tables of numbers in CSV files (RFC 4180), without line breaks inside fields.
struct CsvOptions {
  char separator = ',';
  bool header = true;  // the first line holds the names of the columns
};

struct NumberTable {
  std::vector<std::string> names;  // of the columns; empty without a header
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;  // row by row, each the double nearest to the number in the file

  // For messages: the line of the file, from 1. Lines without text are allowed at the end only.
  std::int64_t line_of(std::int64_t row) const { return row + (names.empty() ? 1 : 2); }
};

// Ignores spaces around a field; a number may be in quotes; lines end with \n or \r\n. Throws
// TrainError, which names the file, line and column: a missing number or one that is not finite,
// too many or too few fields, a header of numbers, no rows.
NumberTable read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

// Labelled images in MNIST's IDX files.
struct IdxImages {
  std::int64_t count = 0, rows = 0, columns = 0;
  std::vector<std::uint8_t> pixels;  // image by image, row by row
  std::vector<std::uint8_t> labels;  // one an image
  int classes = 0;                   // highest label + 1

  std::int64_t pixels_per_image() const { return rows * columns; }
};

// Reads `SPLIT-images-idx3-ubyte` and `SPLIT-labels-idx1-ubyte` in `folder`, also spelled
// `SPLIT-images.idx3-ubyte`, or with `.gz` appended; SPLIT is "train" or "t10k". Throws TrainError,
// which names the file and the error: a missing file, another magic number, no images, a size that
// does not match the header, unequal numbers of images and labels.
IdxImages read_idx_images(const std::filesystem::path& folder, std::string_view split);

// PNG and JPEG files, decoded by libpng and libjpeg-turbo.
struct ImageSize {
  std::int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

struct Image {
  ImageSize size;
  std::vector<std::uint8_t> pixels;  // row by row; red, green, blue of a pixel
};

// The first bytes of `file` decide between the two formats. Errors: another format, a damaged
// header, more than 2^28 pixels.
Result<ImageSize> image_size(std::span<const std::uint8_t> file);

// Every image becomes RGB: gray images get three equal values, and transparency is dropped, as by
// Pillow's convert("RGB"). Pixels are sRGB: a PNG file with another gamma is converted. Errors:
// those of image_size(), a kind of JPEG that libjpeg-turbo does not decode, and damage: what Pillow
// rejects, and a wrong checksum of a PNG's image data. A JPEG file has no checksum: changed bytes
// in it may give other pixels. Warnings of the libraries, about a colour profile or a time for
// instance, are ignored.
Result<Image> decode_image(std::span<const std::uint8_t> file);

// Files of tokens, two bytes each, little-endian: nanoGPT's and llm.c's.
//
// nanoGPT (https://github.com/karpathy/nanoGPT, data/*/prepare.py) writes the tokens alone. llm.c
// (https://github.com/karpathy/llm.c, dev/data/data_common.py) writes 256 integers of 32 bits
// before them: magic number 20240520, version 1, number of tokens, zeros. kAuto: kLlmC where the
// file begins with its magic number.
enum class TokenFormat { kAuto, kNanoGpt, kLlmC };

// The file stays mapped as long as this lives.
class TokenFile {
 public:
  // Throws TrainError, which names the file. With kAuto also where the first 1024 tokens must be of
  // one or of four bytes.
  explicit TokenFile(const std::filesystem::path& path, TokenFormat format = TokenFormat::kAuto);

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::uint16_t> tokens() const { return tokens_; }
  std::uint64_t byte_of(std::int64_t token) const;  // its offset in the file

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::span<const std::uint16_t> tokens_;
};

}  // namespace torchbridge::train
