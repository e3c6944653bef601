#include "trainer_template/ckpt/look.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"
#include "trainer_template/runtime/formats/safetensors_file.h"
#include "trainer_template/runtime/formats/torch_archive.h"

using namespace torchbridge;
using namespace torchbridge::train;
namespace fs = std::filesystem;

namespace {

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(kUnits); ++unit) size /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", size, kUnits[unit]);
  return text;
}

std::uint64_t total_size(const Manifest& manifest) {
  std::uint64_t total = 0;
  for (const FileRecord& file : manifest.files) total += file.size;
  return total;
}

// Of all files in the folder, as far as they can be looked at.
std::uint64_t size_on_disk(const fs::path& folder) {
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const std::uint64_t size =
        fs::is_regular_file(entry->symlink_status(gone)) ? fs::file_size(entry->path(), gone) : 0;
    if (!gone) total += size;
  }
  return total;
}

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  auto steps = complete_steps(folder);
  std::ranges::sort(steps);
  return steps;
}

bool say(const fs::path& path, const std::string& what, bool good) {
  std::printf("%s: %s\n", path.c_str(), what.c_str());
  return good;
}

bool verify_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kDoneFile, ignored))
    return say(folder, std::string("is not complete (no ") + kDoneFile + ")", false);
  const auto manifest = read_manifest(folder);
  if (!manifest && !fs::exists(folder / kDoneFile, ignored))
    return say(folder, "was removed meanwhile, by the run that wrote it", true);
  if (!manifest) return say(folder, manifest.error().message, false);
  const auto step = step_of_folder(folder.filename().string());
  const bool moved = step && *step != manifest->state.step;
  if (moved) say(folder, "its manifest is of step " + std::to_string(manifest->state.step), false);
  const auto faults = all_faults(folder, *manifest);
  if (!faults.empty() && !fs::exists(folder / kDoneFile, ignored))
    return say(folder, "was removed meanwhile, by the run that wrote it", true);
  for (const std::string& fault : faults) say(folder, fault, false);
  std::size_t tensors = 0;
  if (!faults.empty()) return false;
  for (const FileRecord& file : manifest->files) {
    if (file.name.ends_with(".safetensors"))
      tensors += SafetensorsFile(folder / file.name, Links::kRejected).header().tensors.size();
  }
  return say(folder,
             std::to_string(manifest->files.size()) + " files with " + std::to_string(tensors) + " tensors, " +
                 size_text(total_size(*manifest)) + ": whole",
             !moved);
}

void check_listable(const fs::path& folder) {
  std::error_code error, ignored;
  (void)fs::directory_iterator(folder, error);
  if (error) throw TrainError(folder.string() + ": no checkpoints can be looked for there: " + error.message());
  if (!fs::exists(folder / kManifestFile, ignored)) return;
  throw TrainError(folder.string() +
                   " is one checkpoint: give the folder that it is in, or look at it with torchbridge-ckpt show");
}

// Values may be shared by many: each is looked at once.
void read_tensors(const TorchArchive& archive, const PickledValue& value, std::set<std::string>& read,
                  std::set<const PickledValue*>& seen) {
  if (!seen.insert(&value).second) return;
  if (value.is(PickledValue::Kind::kTensor) && read.insert(value.tensor.storage).second) {
    std::string bytes(archive.storage_bytes(value.tensor), '\0');
    archive.read_storage(value.tensor, bytes.data());
  }
  for (const Pickled& item : value.items) read_tensors(archive, *item, read, seen);
}

bool verify_file(const fs::path& path) {
  if (!is_torch_file(path)) {
    const SafetensorsFile file(path);
    return say(path,
               std::to_string(file.header().tensors.size()) +
                   " tensors, well formed; without its manifest there is no checksum to compare",
               true);
  }
  const TorchArchive archive(path);
  const Pickled content = archive.content();
  std::set<std::string> storages;
  std::set<const PickledValue*> seen;
  read_tensors(archive, *content, storages, seen);
  return say(path, std::to_string(storages.size()) + " storages: their CRC-32 are right", true);
}

}  // namespace

bool list(const fs::path& folder) {
  check_listable(folder);
  const auto steps = steps_in(folder);
  for (const std::int64_t step : steps) {
    const auto manifest = read_manifest(folder / step_folder(step));
    if (!manifest) {
      std::printf("%s  %s\n", step_folder(step).c_str(), manifest.error().message.c_str());
      continue;
    }
    std::printf("%s  epoch %lld  %lld samples  %d rank%s  %s\n", step_folder(step).c_str(),
                static_cast<long long>(manifest->state.position.epoch),
                static_cast<long long>(manifest->state.samples_seen), manifest->world_size,
                manifest->world_size == 1 ? "" : "s", size_text(total_size(*manifest)).c_str());
  }
  for (const std::int64_t step : steps_without_done(folder))
    std::printf("%s  has no %s\n", step_folder(step).c_str(), kDoneFile);
  for (const fs::path& path : aside_folders(folder)) {
    std::printf("%s  put aside, %s: yours to remove (rm -r)\n", path.filename().c_str(),
                size_text(size_on_disk(path)).c_str());
  }
  for (const fs::path& path : leftovers(folder)) std::printf("%s  not complete\n", path.filename().c_str());
  if (steps.empty())
    throw TrainError(folder.string() + " holds no complete checkpoint, which is a folder " + step_folder(1) +
                     " or the like with a file " + kDoneFile);
  return true;
}

bool verify(const fs::path& given) try {
  std::error_code ignored;
  const fs::path path = fs::exists(given, ignored) ? fs::canonical(given) : given;
  if (!fs::is_directory(path, ignored)) return verify_file(path);
  const auto steps = steps_in(path);
  if (steps.empty()) return verify_checkpoint(path);
  bool good = true;
  for (const std::int64_t step : steps) good = verify_checkpoint(path / step_folder(step)) && good;
  return good;
} catch (const TrainError& error) {
  std::puts(error.what());
  return false;
}
