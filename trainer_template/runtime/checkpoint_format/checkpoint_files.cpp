#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"

#include <algorithm>
#include <cstdio>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/checkpoint_format/checksum.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::int64_t kMaxStep = 999'999'999'999;

std::string padded(std::int64_t number, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*lld", digits, static_cast<long long>(number));
  return text;
}

// Newest first.
std::vector<std::int64_t> steps_where(const fs::path& root, bool complete) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = step_of_folder(entry->path().filename().string());
    if (step && is_complete(entry->path()) == complete) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

template <class Fits>
std::vector<fs::path> entries_where(const fs::path& root, Fits&& fits) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    if (fits(entry->path().filename().string())) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string step_folder(std::int64_t step) { return std::string(kStepPrefix) + padded(step, 8); }

std::optional<std::int64_t> step_of_folder(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = parse_integer(name.substr(kStepPrefix.size()), 0, kMaxStep);
  return step && step_folder(*step) == name ? step : std::nullopt;
}

std::string optimizer_file(int shard, int shards) {
  return "optimizer-" + padded(shard, 5) + "-of-" + padded(shards, 5) + ".safetensors";
}

bool is_optimizer_file(std::string_view name) {
  return name.starts_with("optimizer-") && name.ends_with(".safetensors");
}

std::string rank_file(int rank) { return "rank-" + padded(rank, 5) + ".safetensors"; }

bool is_complete(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(folder / kDoneFile, ignored));
}

std::vector<std::int64_t> complete_steps(const fs::path& root) { return steps_where(root, true); }

std::vector<std::int64_t> steps_without_done(const fs::path& root) {
  return steps_where(root, false);
}

std::vector<fs::path> aside_folders(const fs::path& root) {
  return entries_where(root, [](std::string_view name) {
    return name.ends_with(kAsideSuffix) &&
           step_of_folder(name.substr(0, name.size() - kAsideSuffix.size()));
  });
}

std::vector<fs::path> leftovers(const fs::path& root) {
  return entries_where(root,
                       [](std::string_view name) { return name.starts_with(kTemporaryPrefix); });
}

FileRecord write_recorded(FileLayer& files, const fs::path& path,
                          const std::vector<std::string_view>& parts) {
  Checksum checksum;
  FileRecord record{.name = path.filename().string()};
  for (std::string_view part : parts) {
    checksum.add(part);
    record.size += part.size();
  }
  record.xxh3 = checksum.digest();
  files.write_synced(path, parts);
  return record;
}

}  // namespace torchbridge::train
