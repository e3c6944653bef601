#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"

#include <sys/stat.h>

#include <optional>

#include <torchbridge/errors.h>

#include "tests/support/faulty_files.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint_format/file_shard.h"
#include "trainer_template/runtime/checkpoint_format/publish.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

// Three ranks write one file together, and each rank one file alone.
void publish_step(FileLayer& files, const fs::path& root, std::int64_t step) {
  constexpr int kRanks = 3;
  const fs::path temporary = root / (".tmp-" + step_folder(step));
  files.remove(temporary);
  const std::string content = "weights of step " + std::to_string(step);
  std::vector<ShardRecord> records;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    const ByteRange range = {content.size() * rank / kRanks, content.size() * (rank + 1) / kRanks};
    const std::string_view piece = std::string_view(content).substr(range.begin, range.size());
    const std::vector<FileShard> shards = {{.name = kModelFile,
                                            .file_size = content.size(),
                                            .range = range,
                                            .pieces = {piece.substr(0, 2), piece.substr(2)}},
                                           {.name = rank_file(static_cast<int>(rank)),
                                            .file_size = 5,
                                            .range = {0, 5},
                                            .pieces = {"state"}}};
    auto written = records_from(to_text(write_shards(files, temporary, shards, {})));
    std::ranges::move(*written, std::back_inserter(records));
  }
  publish(files, root, temporary, {.state = {.step = step}, .files = joined(std::move(records))});
}

void save(FileLayer& files, const fs::path& root, std::int64_t step, int keep) {
  publish_step(files, root, step);
  const std::string error = update_latest_and_prune(files, root, step, {.keep = keep});
  ASSERT_EQ(error, "");
}

std::optional<std::int64_t> newest_good(const fs::path& root) {
  for (std::int64_t step : complete_steps(root)) {
    if (const auto manifest = verified_manifest(root / step_folder(step)))
      return manifest->state.step;
  }
  return std::nullopt;
}

// As where the node of another rank has lost its part, or a report is false: older ones stay.
TEST(CheckpointFiles, AFileThatIsNotThereWithItsSizeIsNotPublished) {
  const TemporaryFolder folder;
  const fs::path temporary = folder / ".tmp-step-00000001";
  const std::vector<FileShard> shards = {
      {.name = kModelFile, .file_size = 5, .range = {0, 5}, .pieces = {"state"}}};
  const Manifest manifest{.state = {.step = 1},
                          .files = joined(write_shards(real_files(), temporary, shards, {}))};
  const auto is_published = [&] {
    try {
      publish(real_files(), folder.path(), temporary, manifest, std::chrono::milliseconds(0));
      return true;
    } catch (const TrainError& error) {
      EXPECT_EQ(error.what(), "'" + (temporary / kModelFile).string() +
                                  "' is not there with the 5 bytes that were written");
      return false;
    }
  };
  const fs::path file = temporary / kModelFile, away = folder / "away";
  fs::rename(file, away);
  EXPECT_FALSE(is_published());
  fs::create_symlink(away, file);
  EXPECT_FALSE(is_published());
  fs::remove(file);
  std::ofstream(file) << "stat";
  EXPECT_FALSE(is_published());
  EXPECT_EQ(complete_steps(folder.path()), std::vector<std::int64_t>());
  std::ofstream(file) << "state";
  EXPECT_TRUE(is_published());
}

TEST(CheckpointFiles, NamesSortLikeSteps) {
  EXPECT_EQ(step_folder(100), "step-00000100");
  EXPECT_EQ(step_folder(123456789), "step-123456789");
  EXPECT_EQ(optimizer_file(0, 16), "optimizer-00000-of-00016.safetensors");
  EXPECT_EQ(rank_file(7), "rank-00007.safetensors");
}

TEST(CheckpointFiles, RejectsOtherNames) {
  EXPECT_EQ(step_of_folder("step-00000100"), 100);
  for (const char* name :
       {"step-100", "step-", "step-0000010x", "step--0000001", ".tmp-step-00000100",
        "step-00000100.aside", "step-000000100", "step-00000000000000000000000100"}) {
    EXPECT_FALSE(step_of_folder(name)) << name;
  }
}

TEST(Publish, KeepsTheNewestAndEveryNthStep) {
  EXPECT_EQ(steps_to_remove({300, 100, 200}, {.keep = 2}), (std::vector<std::int64_t>{100}));
  EXPECT_EQ(steps_to_remove({300, 100, 200, 250, 400}, {.keep = 1, .keep_every = 200}),
            (std::vector<std::int64_t>{300, 250, 100}));
  EXPECT_TRUE(steps_to_remove({100, 200}, {.keep = 2}).empty());
  EXPECT_TRUE(steps_to_remove({}, {}).empty());
}

TEST(CheckpointFiles, RemovesOldOnes) {
  TemporaryFolder root;
  for (std::int64_t step : {1, 2, 3, 4, 5}) save(real_files(), root.path(), step, 2);
  EXPECT_EQ(complete_steps(root.path()), (std::vector<std::int64_t>{5, 4}));
  EXPECT_TRUE(leftovers(root.path()).empty());
  EXPECT_FALSE(fs::exists(root / step_folder(3)));
}

TEST(CheckpointFiles, HaveTheRightsThatTheUmaskLeaves) {
  const mode_t before = umask(0);
  for (const mode_t mask : {0077, 0027, 0002}) {
    TemporaryFolder root;
    umask(mask);
    save(real_files(), root.path(), 1, 1);
    const auto rights = [](const fs::path& path) {
      struct stat status {};
      return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
    };
    EXPECT_EQ(rights(root / step_folder(1)), 0777 & ~mask);
    for (const char* name : {kModelFile, kManifestFile, kDoneFile})
      EXPECT_EQ(rights(root / step_folder(1) / name), 0666 & ~mask) << name;
  }
  umask(before);
}

TEST(Publish, LinksTheNewest) {
  TemporaryFolder root;
  for (std::int64_t step : {1, 2}) save(real_files(), root.path(), step, 3);
  EXPECT_EQ(fs::read_symlink(root / "latest"), "step-00000002");
  EXPECT_EQ(root.read("latest/model.safetensors"), "weights of step 2");
}

TEST(Publish, LeavesAFolderNamedLatestAlone) {
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 3);
  fs::remove(root / "latest");
  fs::create_directory(root / "latest");
  root.write("latest/mine", "precious");
  const std::string expected =
      "'" + (root / "latest").string() +
      "' is a folder, expected the link to the newest checkpoint: move the folder away";
  EXPECT_EQ(update_latest_and_prune(real_files(), root.path(), 1, {.keep = 0}), expected);
  EXPECT_EQ(root.read("latest/mine"), "precious");
  EXPECT_TRUE(complete_steps(root.path()).empty());
  EXPECT_EQ(point_latest_to(real_files(), root.path(), 1), expected);
  EXPECT_TRUE(leftovers(root.path()).empty());
}

// After a power cut at any operation there is a valid checkpoint, the old one or the new one, and
// the next save works.
void cut_power_everywhere(FragileFiles::Loss loss, unsigned seed) {
  bool finished = false;
  int lives = 0;
  for (; !finished; ++lives) {
    SCOPED_TRACE("cut before operation " + std::to_string(lives) + ", seed " +
                 std::to_string(seed));
    ASSERT_LT(lives, 200);
    TemporaryFolder root;
    FragileFiles before(1000), files(lives), after(1000);
    save(before, root.path(), 1, 1);
    try {
      save(files, root.path(), 2, 1);
      finished = true;
    } catch (const PowerCut&) {
    }
    files.lose_what_was_not_synced(loss, seed + lives);
    const auto good = newest_good(root.path());
    ASSERT_TRUE(good);
    ASSERT_EQ(finished ? 2 : *good, *good);

    for (const fs::path& path : leftovers(root.path())) real_files().remove(path);
    save(after, root.path(), 3, 1);
    EXPECT_EQ(newest_good(root.path()), 3);
    EXPECT_EQ(complete_steps(root.path()).size(), 1u);
    EXPECT_TRUE(leftovers(root.path()).empty());
  }
  EXPECT_GT(lives, 30);
}

TEST(Publish, SurvivesAPowerCutThatLosesAllThatWasNotSynced) {
  cut_power_everywhere(FragileFiles::Loss::kEverything, 0);
}
TEST(Publish, SurvivesAPowerCutThatLosesNothing) {
  cut_power_everywhere(FragileFiles::Loss::kNothing, 0);
}
TEST(Publish, SurvivesAPowerCutThatLosesRandomWrites) {
  for (unsigned seed = 1; seed <= 5; ++seed)
    cut_power_everywhere(FragileFiles::Loss::kAtRandom, seed * 1000);
}

TEST(CheckpointFiles, ReplaceADamagedOneOfTheSameStep) {
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 3);
  root.write("step-00000001/model.safetensors", "damaged");
  EXPECT_FALSE(newest_good(root.path()));
  save(real_files(), root.path(), 1, 3);
  EXPECT_EQ(newest_good(root.path()), 1);
}

TEST(CheckpointFiles, EveryFlippedBitIsDetected) {
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

TEST(CheckpointFiles, NameTheDamagedFile) {
  const struct {
    const char* file;
    std::optional<std::string> content;
    std::string expected;
  } kCases[] = {
      {kModelFile, std::nullopt, "model.safetensors is missing"},
      {kModelFile, "short", "model.safetensors has 5 bytes, expected 17"},
      {kModelFile, "weights of step 2", "model.safetensors is damaged: its checksum differs"},
      {kManifestFile, std::nullopt, "manifest.json is missing"},
      {kManifestFile, "{", "manifest.json is invalid"},
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

TEST(CheckpointFiles, AreNotCompleteWithoutDone) {
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 3);
  save(real_files(), root.path(), 2, 3);
  fs::remove(root / "step-00000002/DONE");
  fs::create_directory(root / ".tmp-step-00000003");
  fs::create_directory(root / "mine");
  EXPECT_EQ(complete_steps(root.path()), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(steps_without_done(root.path()), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(leftovers(root.path()), (std::vector<fs::path>{root / ".tmp-step-00000003"}));
}

// As for a file of it that NFS keeps for a process: the next ones are removed, and the same step
// again.
TEST(Publish, GoesOnAfterWhatItCannotRemove) {
  TemporaryFolder root;
  KeepingFiles files("removed-step-00000002");
  for (const std::int64_t step : {1, 2, 3}) save(real_files(), root.path(), step, 3);
  const std::string removed = (root / ".tmp-removed-step-00000002").string(),
                    expected = "not all older ones were removed: cannot remove '" + removed;
  EXPECT_EQ(update_latest_and_prune(files, root.path(), 3, {.keep = 1}), expected + "'");
  EXPECT_EQ(complete_steps(root.path()), std::vector<std::int64_t>{3});
  save(real_files(), root.path(), 2, 3);
  EXPECT_EQ(update_latest_and_prune(files, root.path(), 3, {.keep = 1}), expected + "-'");
  EXPECT_EQ(complete_steps(root.path()), std::vector<std::int64_t>{3});

  // What has the name of a new one does not keep it either.
  KeepingFiles all("removed-");
  save(real_files(), root.path(), 4, 9);
  fs::create_directory(root / "step-00000003.aside");
  rename_newer_to_aside(all, root.path(), 2);
  EXPECT_TRUE(fs::exists(root / "step-00000003.aside/DONE"));
  EXPECT_TRUE(fs::exists(root / ".tmp-removed-step-00000003.aside"));
  root.write("step-00000003", "a file");
  save(all, root.path(), 3, 9);
  EXPECT_EQ(newest_good(root.path()), 3);
}

// `latest` may be a folder, or its temporary name another user's.
TEST(Publish, PrunesWithoutLatest) {
  TemporaryFolder root;
  for (const std::int64_t step : {1, 2}) save(real_files(), root.path(), step, 3);
  KeepingFiles files("latest");
  EXPECT_EQ(update_latest_and_prune(files, root.path(), 2, {.keep = 1}),
            "cannot remove '" + (root / ".tmp-latest").string() + "'");
  EXPECT_EQ(complete_steps(root.path()), std::vector<std::int64_t>{2});
  save(real_files(), root.path(), 3, 3);
  rename_newer_to_aside(files, root.path(), 2);
  EXPECT_EQ(complete_steps(root.path()), std::vector<std::int64_t>{2});
}

// The inodes of the older checkpoints are what the link needs; where nothing helps, no link is left
// that points to nothing.
TEST(Publish, RenewsLatestOnceOlderOnesAreRemoved) {
  struct FewInodes : FileLayer {
    bool link(const fs::path& target, const fs::path& path) override {
      if (std::ssize(complete_steps(path.parent_path())) > most)
        throw TrainError("cannot make a link");
      return FileLayer::link(target, path);
    }
    int most = 1;
  } files;
  TemporaryFolder root;
  save(real_files(), root.path(), 1, 3);
  publish_step(real_files(), root.path(), 2);
  EXPECT_EQ(update_latest_and_prune(files, root.path(), 2, {.keep = 1}), "");
  EXPECT_EQ(fs::read_symlink(root / "latest"), "step-00000002");
  publish_step(real_files(), root.path(), 3);
  files.most = 0;
  EXPECT_EQ(update_latest_and_prune(files, root.path(), 3, {.keep = 1}), "cannot make a link");
  EXPECT_FALSE(fs::is_symlink(root / "latest"));
}

TEST(Publish, ALatestThatPointsToNothingGetsTheNewest) {
  TemporaryFolder root;
  for (const std::int64_t step : {1, 2}) save(real_files(), root.path(), step, 3);
  renew_dangling_latest(real_files(), root.path());
  EXPECT_EQ(fs::read_symlink(root / "latest"), "step-00000002");
  fs::remove_all(root / "step-00000002");
  renew_dangling_latest(real_files(), root.path());
  EXPECT_EQ(fs::read_symlink(root / "latest"), "step-00000001");
}

TEST(FileLayer, NamesPathAndReason) {
  TemporaryFolder folder;
  folder.write("file", "");
  const std::vector<std::string_view> parts = {"x"};
  EXPECT_TRUE(contains(error_of([&] { real_files().write_synced(folder / "file", parts); }),
                       "File exists"));
  EXPECT_TRUE(contains(error_of([&] { real_files().write_synced(folder / "none/file", parts); }),
                       "none/file"));
  EXPECT_TRUE(
      contains(error_of([&] { real_files().make_folder(folder / "file"); }), "File exists"));
}

}  // namespace
}  // namespace torchbridge::train
