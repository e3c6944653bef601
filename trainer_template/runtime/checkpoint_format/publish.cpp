#include "trainer_template/runtime/checkpoint_format/publish.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <thread>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Why `latest` cannot become the link to the newest checkpoint; empty if it can.
std::string latest_link_error(const fs::path& root) {
  std::error_code ignored;
  const fs::path link = root / kLatestLink;
  if (!fs::is_directory(fs::symlink_status(link, ignored))) return {};
  return formatted(
      "'{}' is a folder, expected the link to the newest checkpoint: move the folder away",
      link.string());
}

bool has_size(const fs::path& file, std::uint64_t size) {
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(file, error)) &&
         fs::file_size(file, error) == size && !error;
}

void check_sizes(const fs::path& folder, const Manifest& manifest, milliseconds visible) {
  const auto deadline = std::chrono::steady_clock::now() + visible;
  for (const FileRecord& file : manifest.files) {
    const fs::path path = folder / file.name;
    if (!becomes_visible([&] { return has_size(path, file.size); }, deadline))
      throw TrainError(formatted("'{}' is not there with the {} bytes that were written",
                                 path.string(), file.size));
  }
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

bool dangles(const fs::path& link) {
  std::error_code ignored;
  return fs::is_symlink(link, ignored) && !fs::exists(link, ignored);
}

// Renamed first: an interrupted removal must not leave a folder that looks complete, and what
// cannot be removed must not keep the name. Returns why the renamed one stays; empty if it is gone.
std::string remove_step(FileLayer& files, const fs::path& folder) {
  fs::path removed = folder.parent_path() /
                     (std::string(kTemporaryPrefix) + "removed-" + folder.filename().string());
  while (is_there(removed)) removed += "-";  // of an earlier removal
  files.rename(folder, removed);
  return files.try_remove(removed);
}

}  // namespace

bool becomes_visible(const std::function<bool()>& is_there,
                     std::chrono::steady_clock::time_point deadline) {
  constexpr milliseconds kRetry{50};
  while (!is_there()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kRetry);
  }
  return true;
}

std::vector<std::int64_t> steps_to_remove(std::vector<std::int64_t> steps,
                                          const Retention& retention) {
  std::sort(steps.rbegin(), steps.rend());
  steps.erase(steps.begin(),
              steps.begin() + std::min<std::ptrdiff_t>(retention.keep, std::ssize(steps)));
  std::erase_if(steps, [&](std::int64_t step) {
    return retention.keep_every > 0 && step % retention.keep_every == 0;
  });
  return steps;
}

void rename_to_aside(FileLayer& files, const fs::path& folder, const std::string& why) {
  const fs::path aside = folder.string() + std::string(kAsideSuffix);
  const bool replaces_another = is_there(aside);
  if (replaces_another) remove_step(files, aside);
  files.rename(folder, aside);
  print_message(
      formatted("checkpoint {} renamed to {}{}: {}; remove it with rm -r if you do not need it",
                folder.string(), aside.filename().string(),
                replaces_another ? ", which replaces an earlier folder of that name" : "", why));
}

void rename_newer_to_aside(FileLayer& files, const fs::path& root, std::int64_t step) {
  const std::vector<std::int64_t> steps = complete_steps(root);
  if (steps.empty() || steps.front() <= step) return;
  point_latest_to(files, root, step);  // update_latest_and_prune() reports an error
  for (const std::int64_t newer : steps) {
    if (newer > step)
      rename_to_aside(
          files, root / step_folder(newer),
          formatted("it is newer than the checkpoint of step {}, from which training resumed",
                    step));
  }
}

void publish(FileLayer& files, const fs::path& root, const fs::path& temporary,
             const Manifest& manifest, milliseconds visible) {
  check_sizes(temporary, manifest, visible);
  const std::string text = to_json(manifest);
  const std::vector<std::string_view> parts = {text};
  files.write_synced(temporary / kManifestFile, parts);
  files.sync_folder(temporary);

  const fs::path folder = root / step_folder(manifest.state.step);
  if (is_complete(folder)) {
    rename_to_aside(files, folder, "this run saved another checkpoint of that step");
  } else if (is_there(folder)) {
    remove_step(files, folder);
  }
  files.rename(temporary, folder);
  files.sync_folder(root);
  failpoint("DONE");
  mark_complete(files, folder);
}

void mark_complete(FileLayer& files, const fs::path& folder) {
  files.write_synced(folder / kDoneFile, {});
  files.sync_folder(folder);
}

std::string point_latest_to(FileLayer& files, const fs::path& root, std::int64_t step) try {
  if (const std::string fault = latest_link_error(root); !fault.empty()) return fault;
  const fs::path link = root / kLatestLink,
                 aside = root / (std::string(kTemporaryPrefix) + kLatestLink);
  files.remove(aside);
  if (!is_there(root / step_folder(step))) return files.try_remove(link);
  if (!files.link(step_folder(step), aside)) return {};
  files.rename(aside, link);
  files.sync_folder(root);
  return {};
} catch (const TrainError& error) {
  return error.what();
}

void renew_dangling_latest(FileLayer& files, const fs::path& root) {
  if (!dangles(root / kLatestLink)) return;
  const std::vector<std::int64_t> steps = complete_steps(root);
  if (steps.empty()) return;
  if (const std::string fault = point_latest_to(files, root, steps.front()); !fault.empty())
    print_message(fault);
}

std::string update_latest_and_prune(FileLayer& files, const fs::path& root, std::int64_t newest,
                                    const Retention& retention) {
  std::string link_fault = point_latest_to(files, root, newest), fault;
  for (const std::int64_t step : steps_to_remove(complete_steps(root), retention)) {
    failpoint("prune");
    std::string stays;
    try {
      stays = remove_step(files, root / step_folder(step));
    } catch (const TrainError& error) {
      stays = error.what();
    }
    if (fault.empty() && !stays.empty())
      fault = formatted("not all older ones were removed: {}", stays);
  }
  // The older ones may have had the last inode of a quota. A link to one of them helps nobody.
  if (!link_fault.empty()) link_fault = point_latest_to(files, root, newest);
  if (!link_fault.empty() && dangles(root / kLatestLink)) files.try_remove(root / kLatestLink);
  return link_fault.empty() ? fault : link_fault;
}

void remove_unpublished(FileLayer& files, const fs::path& root, const fs::path& temporary,
                        std::int64_t step) noexcept {
  const fs::path folder = root / step_folder(step);
  for (const fs::path& path : {temporary, folder}) {
    // With DONE the checkpoint is complete, whatever failed after that.
    if (path == temporary || !is_complete(folder)) files.try_remove(path);
  }
}

}  // namespace torchbridge::train
