#include <algorithm>
#include <cctype>

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/from_blob.h>
#include <torchbridge/data.h>
#include <torchbridge/errors.h>
#include <torchbridge/formats.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/nearest_name.h"

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

// Behind it are the same files again, without end.
bool is_link_to_parent(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error) || !is_folder(path)) return false;
  const fs::path target = fs::canonical(path, error),
                 parent = fs::canonical(path.parent_path(), error);
  return !error && std::ranges::mismatch(target, parent).in1 == target.end();
}

// All that are not hidden, in torchvision's order: sorted(os.walk(folder, followlinks=True)).
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> files;  // folder, name
  std::error_code error;
  for (fs::recursive_directory_iterator entry(
           folder, fs::directory_options::follow_directory_symlink, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    if (hidden(path) || is_link_to_parent(path)) {
      entry.disable_recursion_pending();
    } else if (!is_folder(path)) {
      files.emplace_back(path.parent_path().string(), path.filename().string());
    }
  }
  if (error) fail(folder, "cannot be read: " + error.message());
  std::ranges::sort(files);
  std::vector<fs::path> paths;
  for (const auto& [parent, name] : files) paths.push_back(fs::path(parent) / name);
  return paths;
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
    : options_(options), classes_(options.classes) {
  if (!is_folder(folder))
    fail(folder, "is not a folder; expected one with a folder of images for each class");
  for (const fs::path& path : entries(folder)) {
    if (!is_folder(path)) {
      pass_over(path);
      continue;
    }
    const std::string name = path.filename().string();
    if (options.classes.empty()) classes_.push_back(name);
    const auto found = std::ranges::find(classes_, name);
    if (found == classes_.end())
      fail(path, "is a class that the training set does not have" + did_you_mean(name, classes_));
    read_class(path, found - classes_.begin());
  }
  if (classes_.empty()) fail(folder, "has no folders; expected one for each class");
  if (images_.empty()) fail(folder, "has no images in .png, .jpg or .jpeg");
}

void ImageFolder::read_class(const fs::path& folder, std::int64_t label) {
  const std::size_t before = images_.size();
  for (const fs::path& path : files_below(folder)) {
    if (!has_image_ending(path)) {
      pass_over(path);
      continue;
    }
    if (options_.check_headers) {
      const MappedFile file(path);
      if (const auto size = image_size(file.bytes()); !size) fail(path, size.error().message);
    }
    images_.push_back({path, label});
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) fail(path, "cannot be read: " + error.message());
    listing_ +=
        path.lexically_relative(folder.parent_path()).string() + " " + std::to_string(size) + "\n";
  }
  if (options_.classes.empty() && images_.size() == before)
    fail(folder, "has no images in .png, .jpg or .jpeg");
}

void ImageFolder::pass_over(const fs::path& file) {
  if (++passed_over_ == 1) first_passed_over_ = file;
}

std::string ImageFolder::note() const {
  if (passed_over_ == 0) return {};
  return formatted("{} passed over, not .png, .jpg or .jpeg: the first is {}",
                   counted(passed_over_, "file"), printable(first_passed_over_.string()));
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
