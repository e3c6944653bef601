#include "trainer_template/ckpt/look.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"
#include "trainer_template/runtime/formats/safetensors_file.h"

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

// Bytes of all files in the folder, without those that cannot be read.
std::uint64_t size_on_disk(const fs::path& folder) {
  std::uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
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

bool print_result(const fs::path& path, const std::string& what, bool good) {
  std::printf("%s: %s\n", path.c_str(), what.c_str());
  return good;
}

bool verify_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kDoneFile, ignored)) {
    std::printf("%s is not a complete checkpoint: it has no file %s\n", folder.c_str(), kDoneFile);
    return false;
  }
  const auto manifest = read_manifest(folder);
  if (!manifest && !fs::exists(folder / kDoneFile, ignored))
    return print_result(folder, "was removed by its run in the meantime", true);
  if (!manifest) return print_result(folder, manifest.error().message, false);
  const auto step = step_of_folder(folder.filename().string());
  const bool moved = step && *step != manifest->state.step;
  if (moved)
    print_result(folder, formatted("its manifest is of step {}", manifest->state.step), false);
  const auto faults = all_faults(folder, *manifest);
  if (!faults.empty() && !fs::exists(folder / kDoneFile, ignored))
    return print_result(folder, "was removed by its run in the meantime", true);
  for (const std::string& fault : faults) print_result(folder, fault, false);
  std::size_t tensors = 0;
  if (!faults.empty()) return false;
  for (const FileRecord& file : manifest->files) {
    if (file.name.ends_with(".safetensors"))
      tensors += SafetensorsFile(folder / file.name, Links::kRejected).header().tensors.size();
  }
  return print_result(folder,
                      formatted("{} files with {} tensors, {}: valid", manifest->files.size(),
                                tensors, size_text(total_size(*manifest))),
                      !moved);
}

void check_listable(const fs::path& folder) {
  std::error_code error, ignored;
  (void)fs::directory_iterator(folder, error);
  if (error)
    throw TrainError(
        formatted("{}: cannot list checkpoints: {}", folder.string(), error.message()));
  if (!fs::exists(folder / kManifestFile, ignored)) return;
  throw TrainError(folder.string() +
                   " is a single checkpoint: give its parent folder, or use torchbridge-ckpt show");
}

bool verify_file(const fs::path& path) {
  const SafetensorsFile file(path);
  return print_result(
      path,
      formatted("{} tensors, format valid; there is no checksum to compare without a manifest",
                file.header().tensors.size()),
      true);
}

std::string tensor_text(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(length);
  return dtype + " [" + text + "]";
}

std::string whole(const std::string& text) { return visible_line(text, text.size()); }

void line(int depth, const std::string& text) {
  std::printf("%*s%s\n", 2 * depth, "", text.c_str());
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

template <class Map>
void show_map(const char* title, const Map& map) {
  if (map.empty()) return;
  line(0, title);
  for (const auto& [key, value] : map) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      line(1, printable(key) + " " + number_text(value));
    } else {
      line(1, printable(key) + " " + printable(value));
    }
  }
}

void show_safetensors(const fs::path& path, Links links, int depth) {
  const SafetensorsFile file(path, links);
  for (const auto& [key, value] : file.header().metadata)
    line(depth, "(" + printable(key) + " " + printable(value) + ")");
  for (const TensorEntry& entry : file.header().tensors)
    line(depth, printable(entry.name) + "  " + tensor_text(entry.dtype, entry.shape));
}

void show_checkpoint(const fs::path& folder) {
  const auto manifest = read_manifest(folder);
  if (!manifest) throw TrainError(folder.string() + ": " + manifest.error().message);
  const TrainState& state = manifest->state;
  line(0, formatted("step {}, epoch {}, {} samples into it, {} samples in all", state.step,
                    state.position.epoch, state.position.consumed, state.samples_seen));
  line(0, formatted("written by {} ranks{}", manifest->world_size,
                    manifest->seed ? formatted(", seed {}", *manifest->seed) : ""));
  if (!state.run.empty()) line(0, formatted("run {}", printable(state.run)));
  if (!manifest->begun_by.empty())
    line(0, formatted("begun by --resume {}", whole(manifest->begun_by)));
  if (!state.train_set.empty())
    line(0, formatted("fingerprint of the training set {}", printable(state.train_set)));
  const auto& [classes, columns] = state.names;
  if (!classes.empty()) line(0, formatted("classes {}", joined(classes, ", ", whole)));
  if (!columns.empty()) line(0, formatted("columns {}", joined(columns, ", ", whole)));
  show_map("options", manifest->options);
  show_map("versions", manifest->versions);
  show_map("state", state.parts);
  for (const auto& [name, options, parameters] : manifest->optimizer.groups) {
    show_map(formatted("optimizer {}, group {} of {} parameters",
                       printable(manifest->optimizer.kind), printable(name), parameters.size())
                 .c_str(),
             options);
  }
  for (const FileRecord& file : manifest->files) {
    line(0, formatted("{}  {} bytes", file.name, file.size));
    if (file.name.ends_with(".safetensors"))
      show_safetensors(folder / file.name, Links::kRejected, 1);
  }
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
    std::printf("%s  renamed by a later run, %s: remove it with rm -r if you do not need it\n",
                path.filename().c_str(), size_text(size_on_disk(path)).c_str());
  }
  for (const fs::path& path : leftovers(folder))
    std::printf("%s  not complete\n", path.filename().c_str());
  if (steps.empty())
    throw TrainError(
        formatted("{} contains no complete checkpoint (a folder such as {} with a file {})",
                  folder.string(), step_folder(1), kDoneFile));
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

void show(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return show_checkpoint(path);
  show_safetensors(path, Links::kFollowed, 0);
}
