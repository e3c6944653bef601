// IDX files, plain and gzip: whatever the bytes, there are as many pixels and labels as images, or
// there is an error.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <torchbridge/errors.h>
#include <torchbridge/formats.h>

#include "tests/fuzz/programs/expect.h"

using namespace torchbridge;

namespace {

// One folder for all inputs, which goes with the process.
struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "idx-fuzzer-XXXXXX").string();
    expect(mkdtemp(pattern.data()), "there is a folder for the files");
    path = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, std::string_view content) const {
    std::ofstream(path / name, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  std::filesystem::path path;
};

}  // namespace

// The length of the first file, the file of images, the file of labels.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  if (size == 0) return 0;
  const auto files = text_of(data + 1, size - 1);
  const auto images = files.substr(0, data[0]);
  folder.write("train-images-idx3-ubyte", images);
  folder.write("train-labels-idx1-ubyte", files.substr(images.size()));
  try {
    const auto read = train::read_idx_images(folder.path, "train");
    expect(read.count > 0 && std::ssize(read.pixels) == read.count * read.pixels_per_image(),
           "all pixels are there");
    expect(std::ssize(read.labels) == read.count, "each image has a label");
    for (const auto label : read.labels) expect(label < read.classes, "labels are classes");
  } catch (const train::TrainError& error) {
    expect_presentable(Error{error.what()});
  }
  return 0;
}
