#include <torchbridge/formats.h>
#include <zlib.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

using namespace std::string_literals;

std::string word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns,
                   const std::string& pixels) {
  return word(0x803) + word(count) + word(rows) + word(columns) + pixels;
}

std::string labels(const std::string& values) {
  return word(0x801) + word(static_cast<std::uint32_t>(values.size())) + values;
}

const std::string kImages = images(2, 1, 3, "\0\1\2\375\376\377"s);
const std::string kLabels = labels("\7\3"s);

void expect_good(const TemporaryFolder& folder) {
  const IdxImages data = read_idx_images(folder.path(), "train");
  EXPECT_EQ(data.count, 2);
  EXPECT_EQ(data.pixels_per_image(), 3);
  EXPECT_EQ(data.classes, 8);
  EXPECT_EQ(data.pixels, (std::vector<std::uint8_t>{0, 1, 2, 253, 254, 255}));
  EXPECT_EQ(data.labels, (std::vector<std::uint8_t>{7, 3}));
}

TEST(Idx, ReadsBothSpellings) {
  for (const std::string separator : {"-", "."}) {
    TemporaryFolder folder;
    folder.write("train-images" + separator + "idx3-ubyte", kImages);
    folder.write("train-labels" + separator + "idx1-ubyte", kLabels);
    expect_good(folder);
  }
}

// As Kaggle's copy of MNIST has them.
TEST(Idx, ReadsTheFileBesideAFolderOfItsOtherName) {
  TemporaryFolder folder;
  for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}) {
    std::filesystem::create_directory(folder / name);
    folder.write(name + "/" + name, "");
  }
  folder.write("train-images.idx3-ubyte", kImages);
  folder.write("train-labels.idx1-ubyte", kLabels);
  expect_good(folder);
}

TEST(Idx, ReadsGzip) {
  TemporaryFolder folder;
  for (const auto& [name, content] : {std::pair("train-images-idx3-ubyte.gz", kImages),
                                      std::pair("train-labels-idx1-ubyte.gz", kLabels)}) {
    gzFile file = gzopen((folder / name).c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
  }
  expect_good(folder);
}

// Also where all pixels are there, and only the checksum is not: it would not be compared.
TEST(Idx, RejectsACutGzip) {
  TemporaryFolder folder;
  const std::string name = "train-images-idx3-ubyte.gz";
  folder.write("train-labels-idx1-ubyte", kLabels);
  gzFile file = gzopen((folder / name).c_str(), "wb");
  gzwrite(file, kImages.data(), static_cast<unsigned>(kImages.size()));
  gzclose(file);
  const std::string whole = folder.read(name);
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    folder.write(name, whole.substr(0, whole.size() - cut));
    const std::string error = error_of([&] { read_idx_images(folder.path(), "train"); });
    EXPECT_TRUE(contains(error, name + ": ")) << cut << ": " << error;
    if (cut <= 8) {
      EXPECT_TRUE(contains(error, "is cut: its compressed data has no end")) << error;
    }
  }
}

TEST(Idx, RejectsMalformedFiles) {
  const struct {
    std::string images, labels, expected;
  } kCases[] = {
      {"", kLabels, "ends within its header"},
      {kImages.substr(0, 15), kLabels, "ends within its header"},
      {kLabels + kImages, kLabels, "magic number 2049, expected 2051"},
      {"PK\3\4 and more bytes"s, kLabels, "is not an IDX file"},
      {"<!DOCTYPE html><html>", kLabels,
       "is no IDX file: it begins as an HTML page does; download it again"},
      {kImages.substr(0, kImages.size() - 1), kLabels, "ends after 5 of the 6 bytes"},
      {kImages + "x", kLabels, "is longer than the 6 bytes that its header declares"},
      {images(0, 8, 8, ""), labels(""), "has a dimension of size 0 in its header"},
      {images(2, 0, 3, ""), kLabels, "has a dimension of size 0 in its header"},
      {images(0xffffffff, 0xffffffff, 0xffffffff, "x"), kLabels, "the header is damaged"},
      {images(0xffffffff, 3, 1, "x"), kLabels, "ends after 1 of the 12884901885 bytes"},
      {kImages, labels("\1"), "has 1 labels for 2 images"},
      {kImages, kImages, "magic number 2051, expected 2049"},
      {kImages, "\x1f\x8b\x08garbage"s, "train-labels-idx1-ubyte"},
  };
  for (const auto& c : kCases) {
    TemporaryFolder folder;
    folder.write("train-images-idx3-ubyte", c.images);
    folder.write("train-labels-idx1-ubyte", c.labels);
    EXPECT_TRUE(contains(error_of([&] { read_idx_images(folder.path(), "train"); }), c.expected));
  }
}

TEST(Idx, NamesTheFileThatIsMissing) {
  TemporaryFolder folder;
  EXPECT_TRUE(contains(error_of([&] { read_idx_images(folder / "none", "train"); }),
                       "none' does not exist"));
  EXPECT_TRUE(contains(error_of([&] { read_idx_images(folder.path(), "train"); }),
                       "has no train-images-idx3-ubyte"));
  folder.write("train-images-idx3-ubyte", kImages);
  EXPECT_TRUE(contains(error_of([&] { read_idx_images(folder.path(), "train"); }),
                       "has no train-labels-idx1-ubyte"));
}

}  // namespace
}  // namespace torchbridge::train
