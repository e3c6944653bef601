#include "trainer_template/runtime/checkpoint/select_checkpoint.h"

#include <set>
#include <sstream>
#include <vector>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/checkpoint/checkpoint_folder.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

struct Candidates {
  fs::path root;
  std::vector<std::string> names;  // of folders in it, newest first
  bool wanted = false;             // --resume names them: having none is an error
};

Candidates all_in(const fs::path& root, bool wanted) {
  Candidates found{.root = root, .wanted = wanted};
  if (root.empty()) return found;
  for (const std::int64_t step : complete_steps(root)) found.names.push_back(step_folder(step));
  return found;
}

// The first file that a resume loads and the manifest does not list, so that nothing would verify
// it. Empty if all are listed.
std::string not_listed(const Manifest& manifest) {
  std::set<std::string> names;
  bool has_optimizer = false;
  for (const FileRecord& file : manifest.files) {
    names.insert(file.name);
    has_optimizer = has_optimizer || is_optimizer_file(file.name);
  }
  if (!names.contains(kModelFile)) return kModelFile;
  if (!has_optimizer) return "a file of the optimizer's state";
  for (int rank = 0; rank < manifest.world_size; ++rank) {
    if (!names.contains(rank_file(rank))) return rank_file(rank);
  }
  return {};
}

Result<Manifest> manifest_of_step(const fs::path& folder) {
  std::error_code error;
  // Rank 0 sees it; if this rank does not, read_manifest() reports what is missing.
  wait_visible(folder / kDoneFile);
  if (!fs::is_directory(fs::symlink_status(folder, error)))
    return Error{"it is not a folder (links are not followed)"};
  auto manifest = read_manifest(folder);
  if (!manifest) return manifest;
  if (step_of_folder(folder.filename().string()).value_or(manifest->state.step) !=
      manifest->state.step)
    return Error{formatted("{} belongs to another checkpoint, of step {}", kManifestFile,
                           manifest->state.step)};
  if (const std::string missing = not_listed(*manifest); !missing.empty())
    return Error{formatted("{} does not list {}", kManifestFile, missing)};
  return manifest;
}

// Collective: the checkpoint, or the error of the first rank that has one.
Result<SelectedCheckpoint> verified_by_all(const fs::path& folder, ProcessGroup& group,
                                           const NeededFiles& needed) {
  Result<Manifest> manifest = Error{};
  std::string fault;
  FileImages images;
  all_or_none(group, [&] {
    manifest = manifest_of_step(folder);
    if (!manifest) {
      fault = manifest.error().message;
      return;
    }
    if (needed) images = images_for(*manifest, needed(*manifest));
    if (const Status good =
            verify_files(folder, *manifest, group.rank(), group.world_size(), images);
        !good)
      fault = good.error().message;
  });
  for (const std::string& each : group.all_gather(fault)) {
    if (!each.empty()) return Error{each};
  }
  return SelectedCheckpoint{folder, *std::move(manifest), std::move(images)};
}

// A run that was killed while it replaced a checkpoint may leave only step-N.aside.
void check_no_aside_folder(const fs::path& root) {
  const std::vector<fs::path> aside = root.empty() ? std::vector<fs::path>() : aside_folders(root);
  if (aside.empty()) return;
  const std::string name = aside.back().filename().string();
  throw TrainError(
      formatted("checkpoint folder '{}' contains no checkpoint but {}: rename it to {} to resume "
                "from it, or remove it to start from step 0",
                root.string(), name, aside.back().stem().string()));
}

// Not collective.
Candidates candidates(const fs::path& root, const std::string& resume) {
  if (resume == "auto") {
    const Candidates found = all_in(root, /*wanted=*/false);
    if (found.names.empty()) check_no_aside_folder(root);
    return found;
  }
  if (resume == "none") {
    if (root.empty() || complete_steps(root).empty()) return {};
    throw TrainError(
        formatted("checkpoint folder '{}' contains checkpoints, and --resume none starts a new "
                  "run: give another --checkpoint-dir or remove them",
                  root.string()));
  }
  std::error_code error;
  const fs::path path = path_of_resume(resume);
  if (!is_checkpoint(path)) {
    if (fs::is_regular_file(path, error)) {
      throw TrainError(
          formatted("--resume '{}' is a file, not a checkpoint: if torch.save wrote it, convert it "
                    "by python -m torchbridge.convert {} {}",
                    resume, resume, root.empty() ? "FOLDER" : root.string()));
    }
    Candidates found = all_in(path, /*wanted=*/true);
    if (found.names.empty())
      throw TrainError(
          formatted("--resume '{}': no checkpoint found; give auto, none, a checkpoint or a folder "
                    "of checkpoints",
                    resume));
    return found;
  }
  if (!is_complete(path))
    throw TrainError(formatted("--resume '{}': no complete checkpoint (no {})", resume, kDoneFile));
  return {.root = path.parent_path(), .names = {path.filename().string()}, .wanted = true};
}

// All ranks use the candidates of rank 0: on network file systems other ranks may see fewer or
// more.
Candidates agreed_candidates(const fs::path& root, const std::string& resume, ProcessGroup& group) {
  constexpr char kBetween = '\0';
  std::string text;
  all_or_none(group, [&] {
    if (!group.is_first()) return;
    const Candidates found = candidates(root, resume);
    text = (found.wanted ? "1" : "0") + found.root.string();
    for (const std::string& name : found.names) text += kBetween + name;
  });
  std::istringstream parts(group.broadcast(text));
  std::string first;
  std::getline(parts, first, kBetween);
  Candidates agreed{.root = first.substr(1), .wanted = first.front() == '1'};
  for (std::string name; std::getline(parts, name, kBetween);) agreed.names.push_back(name);
  return agreed;
}

// The checkpoint that `resume` means now, on rank 0. Collective.
std::string newest_of(const fs::path& root, const std::string& resume, ProcessGroup& group) {
  std::string newest;
  if (group.is_first() && resume != "none") {
    const fs::path path = resume == "auto" ? root : path_of_resume(resume);
    const std::vector<std::int64_t> steps = complete_steps(path);
    newest = (steps.empty() ? path : path / step_folder(steps.front())).string();
  }
  return group.broadcast(newest);
}

[[noreturn]] void fail(const Candidates& all, const std::string& resume,
                       const std::string& newest_fault) {
  if (all.wanted && all.names.size() == 1)
    throw TrainError(formatted("--resume '{}': {}", resume, newest_fault));
  throw TrainError(
      formatted("none of the {} checkpoints in '{}' is valid ({}): give another --checkpoint-dir "
                "to start from step 0",
                all.names.size(), all.root.string(), newest_fault));
}

}  // namespace

fs::path path_of_resume(const std::string& resume) {
  std::error_code error;
  fs::path path = fs::weakly_canonical(resume, error);
  if (error) path = fs::path(resume).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;  // others make files called DONE, too
  return step_of_folder(path.filename().string()).has_value() ||
         (is_complete(path) && fs::exists(path / kManifestFile, ignored));
}

void again_while_others_save(const fs::path& root, const std::string& resume, ProcessGroup& group,
                             const std::function<void()>& load) {
  constexpr int kMost = 10;
  for (int i = 1;; ++i) {
    const std::string before = newest_of(root, resume, group);
    const auto is_worth_a_try = [&] {
      return i < kMost && newest_of(root, resume, group) != before;
    };
    try {
      return load();
    } catch (const TrainError&) {
      if (!is_worth_a_try()) throw;
    } catch (const PeerFailed&) {
      if (!is_worth_a_try()) throw;
    }
  }
}

std::optional<SelectedCheckpoint> select_checkpoint(const fs::path& root, const std::string& resume,
                                                    ProcessGroup& group,
                                                    const NeededFiles& needed) {
  const Candidates all = agreed_candidates(root, resume, group);
  if (all.names.empty()) return std::nullopt;
  std::string newest_fault;
  for (const std::string& name : all.names) {
    const fs::path folder = all.root / name;
    auto selected = verified_by_all(folder, group, needed);
    if (selected) return *std::move(selected);
    const std::string fault = folder.string() + ": " + selected.error().message;
    if (group.is_first() && all.names.size() > 1) print_message("checkpoint skipped: " + fault);
    if (newest_fault.empty()) newest_fault = fault;
  }
  all_or_none(group, [&] { fail(all, resume, newest_fault); });
  return std::nullopt;
}

void check_task(const SelectedCheckpoint& selected, const std::string& task) {
  const auto before = selected.manifest.options.find("task");
  if (before == selected.manifest.options.end() || before->second == task) return;
  throw TrainError(
      formatted("checkpoint {} was written with --task {}, this run has --task {}: give --task {}",
                selected.folder.string(), before->second, task, before->second));
}

}  // namespace torchbridge::train
