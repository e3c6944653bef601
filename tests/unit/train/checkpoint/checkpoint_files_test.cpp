#include <sys/stat.h>
#include <torchbridge/train/checkpoint/checkpoint_files.h>
#include <torchbridge/train/checkpoint/verify.h>
#include <torchbridge/train/errors.h>

#include <optional>
#include <set>

#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

struct PowerCut : std::runtime_error {
  PowerCut() : std::runtime_error("power cut") {}
};

// Cuts the power before operation `lives`; then names that were not synced are lost, as a disk may do.
class FragileFiles : public FileLayer {
 public:
  explicit FragileFiles(int lives) : lives_(lives) {}

  void make_folder(const fs::path& path) override {
    live();
    FileLayer::make_folder(path);
    unsynced_.insert(path);
  }
  void write_synced(const fs::path& path, std::span<const std::string_view> parts) override {
    live();
    FileLayer::write_synced(path, parts);
    unsynced_.insert(path);
  }
  void sync_folder(const fs::path& path) override {
    live();
    FileLayer::sync_folder(path);
    std::erase_if(unsynced_, [&](const fs::path& name) { return name.parent_path() == path; });
    std::erase_if(renamed_, [&](const auto& names) { return names.second.parent_path() == path; });
  }
  void rename(const fs::path& from, const fs::path& to) override {
    live();
    FileLayer::rename(from, to);
    renamed_.emplace_back(from, to);
  }
  void remove(const fs::path& path) override {
    live();
    FileLayer::remove(path);
  }

  void lose_what_was_not_synced() {
    for (auto names = renamed_.rbegin(); names != renamed_.rend(); ++names) fs::rename(names->second, names->first);
    for (const fs::path& path : unsynced_) fs::remove_all(path);
  }

 private:
  void live() {
    if (lives_-- == 0) throw PowerCut();
  }
  int lives_;
  std::set<fs::path> unsynced_;
  std::vector<std::pair<fs::path, fs::path>> renamed_;
};

void save(FileLayer& files, const fs::path& root, std::int64_t step, int keep) {
  const fs::path temporary = root / (".tmp-" + step_folder(step));
  files.remove(temporary);
  files.make_folder(temporary);
  Manifest manifest{.step = step};
  const std::string content = "weights of step " + std::to_string(step);
  manifest.files.push_back(write_recorded(files, temporary / kModelFile, {content}));
  publish(files, root, temporary, manifest, keep);
}

std::optional<std::int64_t> newest_good(const fs::path& root) {
  for (std::int64_t step : complete_steps(root)) {
    if (const auto manifest = verified_manifest(root / step_folder(step))) return manifest->step;
  }
  return std::nullopt;
}

TEST(CheckpointFiles, NamesSortLikeSteps) {
  EXPECT_EQ(step_folder(100), "step-00000100");
  EXPECT_EQ(step_folder(123456789), "step-123456789");
  EXPECT_EQ(optimizer_file(0, 16), "optimizer-00000-of-00016.safetensors");
  EXPECT_EQ(rank_file(7), "rank-00007.safetensors");
}

TEST(CheckpointFiles, KnowsNoOtherNames) {
  EXPECT_EQ(step_of_folder("step-00000100"), 100);
  for (const char* name : {"step-100", "step-", "step-0000010x", "step--0000001", ".tmp-step-00000100",
                           "step-00000100.aside", "step-000000100", "step-00000000000000000000000100"}) {
    EXPECT_FALSE(step_of_folder(name)) << name;
  }
}

TEST(CheckpointFiles, KeepsTheNewest) {
  EXPECT_EQ(steps_to_remove({300, 100, 200}, 2), (std::vector<std::int64_t>{100}));
  EXPECT_TRUE(steps_to_remove({100, 200}, 2).empty());
  EXPECT_TRUE(steps_to_remove({}, 3).empty());
}

TEST(CheckpointFiles, RemovesOldOnes) {
  TemporaryFolder root;
  for (std::int64_t step : {1, 2, 3, 4, 5}) save(real_files(), root.path(), step, 2);
  EXPECT_EQ(complete_steps(root.path()), (std::vector<std::int64_t>{5, 4}));
  EXPECT_TRUE(leftovers(root.path()).empty());
  EXPECT_FALSE(fs::exists(root / step_folder(3)));
}

TEST(CheckpointFiles, ArePrivate) {
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 1);
  struct stat status {};
  ASSERT_EQ(stat((root / step_folder(1)).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  for (const char* name : {kModelFile, kManifestFile, kDoneFile}) {
    ASSERT_EQ(stat((root / step_folder(1) / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << name;
  }
}

// The promise: after a power cut at any moment there is a good checkpoint, the old one or the new one, and writing goes on.
TEST(CheckpointFiles, SurviveAPowerCutAnywhere) {
  bool finished = false;
  for (int lives = 0; !finished; ++lives) {
    ASSERT_LT(lives, 100);
    TemporaryFolder root;
    save(real_files(), root.path(), 1, 1);
    FragileFiles files(lives);
    try {
      save(files, root.path(), 2, 1);
      finished = true;
    } catch (const PowerCut&) {
    }
    files.lose_what_was_not_synced();
    const auto good = newest_good(root.path());
    ASSERT_TRUE(good) << "cut before operation " << lives;
    EXPECT_EQ(finished ? 2 : *good, *good) << "cut before operation " << lives;

    for (const fs::path& path : leftovers(root.path())) real_files().remove(path);
    save(real_files(), root.path(), 3, 1);
    EXPECT_EQ(newest_good(root.path()), 3);
    EXPECT_EQ(complete_steps(root.path()).size(), 1u) << "cut before operation " << lives;
  }
}

TEST(CheckpointFiles, ReplaceADamagedOneOfTheSameStep) {
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 3);
  root.write("step-00000001/model.safetensors", "damaged");
  EXPECT_FALSE(newest_good(root.path()));
  save(real_files(), root.path(), 1, 3);
  EXPECT_EQ(newest_good(root.path()), 1);
}

TEST(CheckpointFiles, EveryFlippedBitIsFound) {
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 1);
  const std::string good = root.read("step-00000001/model.safetensors");
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    root.write("step-00000001/model.safetensors", bad);
    EXPECT_FALSE(verified_manifest(root / "step-00000001")) << bit;
  }
}

TEST(CheckpointFiles, SayWhichFileIsBad) {
  const struct {
    const char* file;
    std::optional<std::string> content;
    std::string expected;
  } kCases[] = {
      {kModelFile, std::nullopt, "model.safetensors is missing"},
      {kModelFile, "short", "model.safetensors has 5 bytes, 17 were written"},
      {kModelFile, "weights of step 2", "model.safetensors is damaged: its checksum differs"},
      {kManifestFile, std::nullopt, "manifest.json is missing"},
      {kManifestFile, "{", "manifest.json cannot be understood"},
  };
  for (const auto& c : kCases) {
    TemporaryFolder root;
    save(real_files(), root.path(), 1, 1);
    const std::string name = step_folder(1) + "/" + c.file;
    c.content ? root.write(name, *c.content) : static_cast<void>(fs::remove(root / name));
    const auto manifest = verified_manifest(root / step_folder(1));
    ASSERT_FALSE(manifest);
    EXPECT_TRUE(contains(manifest.error().message, c.expected));
  }
}

TEST(CheckpointFiles, TakeNoFolderWithoutDone) {
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 3);
  save(real_files(), root.path(), 2, 3);
  fs::remove(root / "step-00000002/DONE");
  fs::create_directory(root / ".tmp-step-00000003");
  fs::create_directory(root / "mine");
  EXPECT_EQ(complete_steps(root.path()), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(leftovers(root.path()).size(), 2u);
}

TEST(FileLayer, NamesPathAndReason) {
  TemporaryFolder folder;
  folder.write("file", "");
  const std::vector<std::string_view> parts = {"x"};
  EXPECT_TRUE(contains(error_of([&] { real_files().write_synced(folder / "file", parts); }), "File exists"));
  EXPECT_TRUE(contains(error_of([&] { real_files().write_synced(folder / "none/file", parts); }), "none/file"));
  EXPECT_TRUE(contains(error_of([&] { real_files().make_folder(folder / "file"); }), "File exists"));
}

}  // namespace
}  // namespace torchbridge::train
