#include <algorithm>
#include <cctype>

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/from_blob.h>
#include <torchbridge/data.h>
#include <torchbridge/errors.h>
#include <torchbridge/formats.h>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw TrainError(path.string() + ": " + reason);
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool has_image_ending(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!hidden(entry->path())) paths.push_back(entry->path());
  }
  if (error) fail(folder, "cannot be read: " + error.message());
  std::ranges::sort(paths);
  return paths;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// [3, height, width] float from 0 to 1.
at::Tensor decoded(const fs::path& path) {
  const MappedFile file(path);
  auto image = decode_image(file.bytes());
  if (!image) fail(path, image.error().message);
  const at::Tensor pixels =
      at::from_blob(image->pixels.data(), {image->size.height, image->size.width, 3}, at::kByte);
  return pixels.permute({2, 0, 1})
      .to(at::kFloat, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous)
      .div_(255);
}

}  // namespace

ImageFolder::ImageFolder(const fs::path& folder, const ImageFolderOptions& options)
    : options_(options) {
  if (!is_folder(folder))
    fail(folder, "is not a folder; expected one with a folder of images for each class");
  for (const fs::path& path : entries(folder)) {
    if (!is_folder(path)) fail(path, "is a file; expected only folders, one for each class");
    classes_.push_back(path.filename().string());
    read_class(path);
  }
  if (classes_.empty()) fail(folder, "has no folders; expected one for each class");
}

void ImageFolder::read_class(const fs::path& folder) {
  const std::size_t before = images_.size();
  for (const fs::path& path : entries(folder)) {
    if (is_folder(path)) fail(path, "is a folder; expected only images");
    if (!has_image_ending(path)) fail(path, "expected a name that ends in .png, .jpg or .jpeg");
    if (options_.check_headers) {
      const MappedFile file(path);
      if (const auto size = image_size(file.bytes()); !size) fail(path, size.error().message);
    }
    images_.push_back({path, std::ssize(classes_) - 1});
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) fail(path, "cannot be read: " + error.message());
    listing_ +=
        classes_.back() + "/" + path.filename().string() + " " + std::to_string(size) + "\n";
  }
  if (images_.size() == before) fail(folder, "has no images");
}

Batch ImageFolder::collate(std::span<const std::int64_t> indices) const {
  Batch batch;
  batch.inputs =
      batch_tensor({std::ssize(indices), 3, options_.height, options_.width}, at::kFloat);
  batch.targets = batch_tensor({std::ssize(indices)}, at::kLong);
  for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
    const Labelled& labelled = images_[indices[i]];
    at::Tensor image = decoded(labelled.path);
    if (image.size(1) != options_.height || image.size(2) != options_.width) {
      image = at::_upsample_bilinear2d_aa(image.unsqueeze(0), {options_.height, options_.width},
                                          /*align_corners=*/false)
                  .squeeze(0);
    }
    batch.inputs[i].copy_(image);
    batch.targets.mutable_data_ptr<std::int64_t>()[i] = labelled.label;
  }
  return batch;
}

}  // namespace torchbridge::train
