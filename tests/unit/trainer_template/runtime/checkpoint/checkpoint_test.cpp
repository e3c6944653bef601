#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/optimizer.h>

#include "bridge/net/host_names.h"
#include "tests/support/alone.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint/checkpoint_folder.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

// A model of one parameter whose value is the step, with an optimizer.
class Checkpoint : public testing::Test {
 protected:
  void train_to(std::int64_t step) {
    Checkpoints checkpoints(alone(), options());
    resume_in(checkpoints);
    save_in(checkpoints, step);
  }
  std::optional<ResumedRun> resume_in(Checkpoints& checkpoints) {
    return checkpoints.resume(model_, *optimizer_);
  }
  void save_in(Checkpoints& checkpoints, std::int64_t step) {
    weight_.detach().fill_(static_cast<double>(step));
    weight_.mutable_grad() = at::ones({2});
    optimizer_->step(0.0);
    checkpoints.save({.step = step, .position = {.epoch = 1, .consumed = step}}, model_,
                     *optimizer_);
  }
  CheckpointOptions options() const {
    CheckpointOptions options;
    options.folder = root_;
    options.keep = keep_;
    options.resume = resume_;
    options.seed = seed_;
    return options;
  }
  std::optional<ResumedRun> resume() {
    weight_.detach().fill_(-1);
    Checkpoints checkpoints(alone(), options());
    return resume_in(checkpoints);
  }
  std::int64_t step_of_resume() {
    const auto resumed = resume();
    return resumed ? resumed->state.step : 0;
  }
  std::string resume_error() {
    return error_of([&] { resume(); });
  }
  double weight() const { return weight_.detach()[0].item<double>(); }
  void damage(std::int64_t step) {
    folder_.write("runs/" + step_folder(step) + "/" + kModelFile, "damaged");
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_ / "runs";
  std::string resume_ = "auto";
  int keep_ = 3;
  std::uint64_t seed_ = 0;
  at::Tensor weight_ = at::ones({2}).set_requires_grad(true);
  ModelTensors model_{.parameters = {{"weight", weight_}}, .buffers = {}};
  std::unique_ptr<Optimizer> optimizer_ = make_adamw(model_.parameters, {});
};

TEST_F(Checkpoint, ResumeWithoutACheckpointChangesNothing) {
  EXPECT_FALSE(resume());
  EXPECT_EQ(weight(), -1);
}

TEST_F(Checkpoint, ResumesFromTheNewest) {
  train_to(1);
  train_to(2);
  const auto resumed = resume();
  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->state.step, 2);
  EXPECT_EQ(resumed->state.position, (SamplerPosition{.epoch = 1, .consumed = 2}));
  EXPECT_EQ(weight(), 2);
}

TEST_F(Checkpoint, KeepsTensorsOfTheProgram) {
  const at::Tensor average = at::full({2}, 5.0), count = at::full({}, 3, at::kLong);
  {
    Checkpoints checkpoints(alone(), options());
    checkpoints.keep("ema", {{"weight", average}});
    checkpoints.keep("count", {{"", count}});
    save_in(checkpoints, 1);
  }
  const at::Tensor resumed = at::zeros({2}), resumed_count = at::zeros({}, at::kLong),
                   other = at::ones({1});
  Checkpoints checkpoints(alone(), options());
  ASSERT_TRUE(resume_in(checkpoints));
  checkpoints.keep("ema", {{"weight", resumed}});
  checkpoints.keep("count", {{"", resumed_count}});
  EXPECT_TRUE(resumed.equal(average));
  EXPECT_TRUE(resumed_count.equal(count));
  testing::internal::CaptureStderr();
  checkpoints.keep("other", {{"", other}});
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(),
                       "the checkpoint of step 1 has no 'other': it begins with this start"));
  EXPECT_EQ(other.item<float>(), 1);
}

TEST_F(Checkpoint, RejectsTensorsThatItCannotKeep) {
  {
    Checkpoints checkpoints(alone(), options());
    checkpoints.keep("ema", {{"weight", at::ones({2})}});
    for (const char* name : {"", "a.b", "Ema", "ema"}) {
      EXPECT_EQ(error_of([&] {
                  checkpoints.keep(name, {{"", at::ones({1})}});
                }),
                "the program keeps tensors as '" + std::string(name) +
                    "': expected a name of small letters, digits and underscores, once");
    }
    save_in(checkpoints, 1);
  }
  Checkpoints checkpoints(alone(), options());
  ASSERT_TRUE(resume_in(checkpoints));
  EXPECT_TRUE(contains(error_of([&] {
                         checkpoints.keep("ema", {{"weight", at::ones({3})}});
                       }),
                       "checkpoint of step 1"));
}

TEST_F(Checkpoint, KeepsTheRandomGenerator) {
  at::manual_seed(7);
  train_to(1);
  const at::Tensor expected = at::rand({3});
  at::manual_seed(8);
  ASSERT_TRUE(resume());
  EXPECT_TRUE(at::rand({3}).equal(expected));
}

// The optimizer adopts the state that was read: its steps must not change the file.
TEST_F(Checkpoint, IsNotChangedByTrainingThatResumedFromIt) {
  train_to(1);
  ASSERT_TRUE(resume());
  const auto average = [&] { return optimizer_->state().at(0).second[0].item<double>(); };
  const double saved = average();
  weight_.mutable_grad() = at::ones({2});
  optimizer_->step(0.1);
  EXPECT_NE(average(), saved);
  EXPECT_EQ(step_of_resume(), 1);
  EXPECT_EQ(average(), saved);
}

TEST_F(Checkpoint, NeedsStateAsAnImageOnlyIfItIsContiguous) {
  train_to(1);
  const auto needed = [](Optimizer& optimizer) {
    const NeededFiles files = needed_files(optimizer, alone());
    return files(Manifest{
        .files = {{.name = kModelFile}, {.name = optimizer_file(0, 1)}, {.name = rank_file(0)}}});
  };
  EXPECT_EQ(needed(*optimizer_), (std::vector<std::string>{kModelFile, optimizer_file(0, 1)}));
  const auto transposed = make_adamw(NamedTensors{{"weight", at::ones({2, 3}).t()}}, {});
  EXPECT_EQ(needed(*transposed), std::vector<std::string>{kModelFile});
}

TEST_F(Checkpoint, SkipsAndRenamesADamagedOne) {
  train_to(1);
  train_to(2);
  damage(2);
  const auto resumed = resume();
  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->state.step, 1);
  EXPECT_EQ(weight(), 1);
  train_to(2);
  EXPECT_TRUE(fs::exists(root_ / "step-00000002.aside"));
  EXPECT_EQ(step_of_resume(), 2);
}

// The run may still fail for another reason, or end before its first step.
TEST_F(Checkpoint, ResumeChangesNoFileUntilTheFirstSave) {
  for (const std::int64_t step : {1, 2, 3}) train_to(step);
  const auto entries = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  };
  const auto before = entries();
  resume_ = root_ / "step-00000001";
  EXPECT_EQ(step_of_resume(), 1);
  EXPECT_EQ(entries(), before);
  EXPECT_EQ(fs::read_symlink(root_ / "latest"), "step-00000003");
  train_to(2);
  resume_ = "auto";
  EXPECT_EQ(step_of_resume(), 2);
  EXPECT_TRUE(fs::exists(root_ / "step-00000002.aside/DONE"));
  EXPECT_TRUE(fs::exists(root_ / "step-00000003.aside/DONE"));
  EXPECT_EQ(complete_steps(root_), (std::vector<std::int64_t>{2, 1}));
}

TEST_F(Checkpoint, RenamesOneOfTheSameStepOfAnotherRun) {
  train_to(2);
  const fs::path first = root_;
  root_ = folder_ / "others";
  train_to(2);
  resume_ = first / "step-00000002";
  Checkpoints checkpoints(alone(), options());
  ASSERT_TRUE(resume_in(checkpoints));
  save_in(checkpoints, 2);
  EXPECT_TRUE(fs::exists(root_ / "step-00000002/DONE"));
  EXPECT_TRUE(fs::exists(root_ / "step-00000002.aside/DONE"));
}

TEST_F(Checkpoint, RejectsAFolderWithOnlyRenamedOnes) {
  train_to(2);
  fs::rename(root_ / "step-00000002", root_ / "step-00000002.aside");
  EXPECT_TRUE(contains(resume_error(),
                       "contains no checkpoint but step-00000002.aside: rename it to step-00000002 "
                       "to resume from it"));
  fs::rename(root_ / "step-00000002.aside", root_ / "step-00000002");
  EXPECT_EQ(step_of_resume(), 2);
}

TEST_F(Checkpoint, ReportsWhatItRenames) {
  const auto said = [&] {
    train_to(1);
    train_to(2);
    damage(2);
    testing::internal::CaptureStderr();
    train_to(2);
    return testing::internal::GetCapturedStderr();
  };
  const std::string aside =
      "checkpoint " + (root_ / "step-00000002").string() + " renamed to step-00000002.aside";
  const std::string why =
      ": it is newer than the checkpoint of step 1, from which training resumed; remove it with rm "
      "-r if you do not "
      "need it\n";
  EXPECT_TRUE(contains(said(), aside + why));
  EXPECT_TRUE(contains(said(), aside + ", which replaces an earlier folder of that name" + why));
}

TEST_F(Checkpoint, FailsIfAllAreDamaged) {
  train_to(1);
  damage(1);
  EXPECT_TRUE(contains(resume_error(), "none of the 1 checkpoints"));
}

TEST_F(Checkpoint, RejectsResumeNoneInAFolderWithCheckpoints) {
  train_to(1);
  resume_ = "none";
  EXPECT_TRUE(contains(resume_error(), "contains checkpoints, and --resume none starts a new run"));
}

TEST_F(Checkpoint, ResumesFromTheNamedOne) {
  train_to(1);
  train_to(2);
  resume_ = (root_ / "step-00000001/").string();
  EXPECT_EQ(resume()->state.step, 1);
  EXPECT_EQ(weight(), 1);
  resume_ = root_.string();
  EXPECT_EQ(resume()->state.step, 2);
  resume_ = (folder_ / "none").string();
  EXPECT_TRUE(contains(resume_error(), "no checkpoint found"));
  resume_ = (root_ / "step-00000009").string();
  EXPECT_TRUE(contains(resume_error(), "no complete checkpoint"));
}

TEST_F(Checkpoint, RejectsAnotherModel) {
  train_to(1);
  model_.parameters[0].second = at::ones({3});
  EXPECT_TRUE(contains(resume_error(), "has 'weight' with shape [2], this model with [3]"));
  model_.parameters[0].first = "other";
  EXPECT_TRUE(contains(resume_error(), "has no 'other'"));
}

TEST_F(Checkpoint, RejectsAnotherOptimizer) {
  train_to(1);
  optimizer_ = make_adam(model_.parameters, {});
  EXPECT_TRUE(contains(resume_error(),
                       "was written with --optimizer adamw, this run has --optimizer adam"));
}

TEST_F(Checkpoint, RejectsAnotherSeed) {
  train_to(1);
  seed_ = 4;
  EXPECT_TRUE(contains(resume_error(), "--seed 0, this run has --seed 4"));
}

TEST_F(Checkpoint, MayHaveAnyName) {
  train_to(3);
  for (const char* name : {"best", "step-3", "step-00000003.aside"}) {
    resume_ = folder_ / name;
    fs::copy(root_ / step_folder(3), resume_);
    EXPECT_EQ(step_of_resume(), 3) << name;
  }
  resume_ = folder_ / "step-00000009";
  fs::copy(root_ / step_folder(3), resume_);
  EXPECT_TRUE(contains(resume_error(), "belongs to another checkpoint, of step 3"));
}

TEST_F(Checkpoint, OfTheOwnFolderGoesOnAsTheRunBegan) {
  resume_ = "none";
  train_to(1);
  resume_ = root_;
  train_to(2);
  resume_ = "none";
  EXPECT_EQ(step_of_resume(), 2);
}

// As of a run that removes what is read.
TEST_F(Checkpoint, IsSelectedAgainIfAnotherRunHasSavedMeanwhile) {
  train_to(1);
  int reads = 0;
  const auto read = [&](bool saves) {
    again_while_others_save(root_, "auto", alone(), [&] {
      if (++reads > 1) return;
      if (saves) train_to(2);
      throw TrainError("no such file");
    });
  };
  read(/*saves=*/true);
  EXPECT_EQ(reads, 2);
  reads = 0;
  EXPECT_EQ(error_of([&] { read(/*saves=*/false); }), "no such file");
  EXPECT_EQ(reads, 1);
}

TEST_F(Checkpoint, IsLockedByOneRun) {
  const Checkpoints first(alone(), options());
  EXPECT_TRUE(
      contains(error_of([&] { Checkpoints(alone(), options()); }),
               " on " + host_name() + ", process " + std::to_string(getpid()) + "); wait for it"));
}

// As without locks: the steps of neither run replace those of the other.
TEST_F(Checkpoint, IsOfTheRunThatTookTheFolderLast) {
  Checkpoints first(alone(), options());
  save_in(first, 1);
  fs::remove(root_ / ".lock");
  save_in(first, 2);
  Checkpoints second(alone(), options());
  EXPECT_EQ(resume_in(second)->state.step, 2);
  save_in(second, 3);
  EXPECT_TRUE(contains(error_of([&] { save_in(first, 3); }),
                       "which started later; give one of the runs another"));
  EXPECT_TRUE(contains(error_of([&] { first.save_last({.step = 4}, model_, *optimizer_); }),
                       "is in use by another run ("));
  save_in(second, 4);
  EXPECT_EQ(complete_steps(root_), (std::vector<std::int64_t>{4, 3, 2}));
  EXPECT_TRUE(aside_folders(root_).empty());
}

// flock() needs no right to write: a file that others may read could be locked by them.
TEST_F(Checkpoint, IsLockedByThoseWhoMayWrite) {
  const auto rights_of_lock = [&] {
    const Checkpoints checkpoints(alone(), options());
    struct stat status {};
    EXPECT_EQ(stat((root_ / ".lock").c_str(), &status), 0);
    return status.st_mode & 0777;
  };
  const mode_t before = umask(0);
  for (const auto& [mask, expected] : {std::pair(0022u, 0600u), std::pair(0002u, 0660u)}) {
    root_ = folder_ / std::to_string(mask);
    umask(mask);
    EXPECT_EQ(rights_of_lock(), expected);
  }
  umask(before);
  // The folder is given to a group later; in one like /tmp nobody else is to lock the run.
  root_ = folder_ / std::to_string(0022u);
  ASSERT_EQ(chmod(root_.c_str(), 01770), 0);
  EXPECT_EQ(rights_of_lock(), 0600u);
  ASSERT_EQ(chmod(root_.c_str(), 0770), 0);
  EXPECT_EQ(rights_of_lock(), 0660u);
}

// As on a node whose network file system shows a file of another node late.
TEST_F(Checkpoint, WaitsForAFileThatAppearsLate) {
  train_to(1);
  const fs::path done = root_ / "step-00000001/DONE", hidden = folder_ / "hidden";
  fs::rename(done, hidden);
  std::promise<void> looking;
  std::jthread later([&] {
    looking.get_future().wait();
    fs::rename(hidden, done);
  });
  looking.set_value();
  EXPECT_TRUE(wait_visible(done));
}

TEST_F(Checkpoint, RemovesUnfinishedSavesOfKilledRuns) {
  train_to(1);
  fs::create_directory(root_ / ".tmp-step-00000002");
  resume();
  EXPECT_FALSE(fs::exists(root_ / ".tmp-step-00000002"));
}

// As one that NFS keeps for a process that has a file of it open, or another user's.
TEST_F(Checkpoint, IsResumedIfSomethingOfEarlierRunsCannotBeRemoved) {
  train_to(1);
  for (const char* name : {".tmp-removed-step-00000001", ".tmp-step-00000002"})
    fs::create_directory(root_ / name);
  KeepingFiles files(".tmp-");
  testing::internal::CaptureStderr();
  {
    Checkpoints checkpoints(alone(), options(), files);
    EXPECT_EQ(resume_in(checkpoints)->state.step, 1);
    save_in(checkpoints, 2);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(said, "checkpoint folder '" + root_.string() +
                                 "' keeps 2 leftovers of earlier runs: cannot remove '" +
                                 (root_ / ".tmp-removed-step-00000001").string() + "'"));
  EXPECT_EQ(step_of_resume(), 2);
  EXPECT_TRUE(leftovers(root_).empty());
}

TEST_F(Checkpoint, IsResumedIfADamagedOneCannotBeRenamed) {
  train_to(1);
  fs::create_directory(root_ / "step-00000002");
  FullDisk disk(0, EACCES, /*once=*/true);
  testing::internal::CaptureStderr();
  const FolderLock lock = acquire_folder(root_, disk);
  EXPECT_TRUE(
      contains(testing::internal::GetCapturedStderr(),
               "has no DONE, and manifest.json is missing or cannot be read; cannot rename: "));
}

TEST_F(Checkpoint, GetsDoneIfItsFilesAreValid) {
  train_to(1);
  fs::remove(root_ / "step-00000001/DONE");
  EXPECT_EQ(step_of_resume(), 1);
  EXPECT_TRUE(fs::is_regular_file(root_ / "step-00000001/DONE"));
  fs::remove(root_ / "step-00000001/DONE");
  fs::create_symlink("manifest.json", root_ / "step-00000001/DONE");
  EXPECT_EQ(step_of_resume(), 1);
  EXPECT_FALSE(fs::is_symlink(root_ / "step-00000001/DONE"));
}

TEST_F(Checkpoint, IsNotRemovedWhenDamagedAndWithoutDone) {
  train_to(1);
  fs::copy(root_ / "step-00000001", root_ / "step-00000002");
  fs::remove(root_ / "step-00000002/DONE");
  EXPECT_EQ(step_of_resume(), 1);
  EXPECT_TRUE(fs::exists(root_ / "step-00000002.aside/manifest.json"));
  fs::remove(root_ / "step-00000001/DONE");
  fs::resize_file(root_ / "step-00000001/model.safetensors", 10);
  EXPECT_TRUE(
      contains(resume_error(), "step-00000001 has no DONE, and model.safetensors has 10 bytes"));
  EXPECT_TRUE(fs::exists(root_ / "step-00000001/manifest.json"));
}

TEST_F(Checkpoint, SavesAStepOnce) {
  Checkpoints checkpoints(alone(), options());
  save_in(checkpoints, 5);
  const auto before = fs::last_write_time(root_ / "step-00000005/DONE");
  save_in(checkpoints, 5);
  EXPECT_EQ(fs::last_write_time(root_ / "step-00000005/DONE"), before);
}

TEST_F(Checkpoint, IsSavedInAFolderThatIsALink) {
  fs::create_directories(folder_ / "scratch/runs");
  fs::create_directory_symlink("scratch/runs", root_);
  train_to(1);
  EXPECT_EQ(step_of_resume(), 1);
  EXPECT_TRUE(fs::is_symlink(root_));
  EXPECT_EQ(complete_steps(folder_ / "scratch/runs"), std::vector<std::int64_t>{1});
}

// Its file system may not be mounted: the folder would be made below the mount point.
TEST_F(Checkpoint, IsNotSavedBelowALinkToNothing) {
  fs::create_directory_symlink("scratch/runs", root_);
  EXPECT_TRUE(contains(
      resume_error(), "runs' is a link to 'scratch/runs', which does not exist: make that folder"));
}

TEST_F(Checkpoint, IsNotSavedInALinkToItself) {
  fs::create_directory_symlink("runs", root_);
  EXPECT_TRUE(contains(resume_error(), "runs': Too many levels of symbolic links"));
}

// One operation after the other fails, up to the last one of the check.
TEST_F(Checkpoint, EndsTheRunAtTheStartIfItCannotBeSaved) {
  const char* const kOperations[] = {"folder", "open",        "write",  "sync",
                                     "link",   "sync folder", "rename", "sync folder"};
  for (int good = 0; good < static_cast<int>(std::size(kOperations)); ++good) {
    FullDisk disk(good, ENOSPC, /*once=*/false);
    EXPECT_EQ(error_of([&] { Checkpoints(alone(), options(), disk); }),
              std::string("cannot ") + kOperations[good] +
                  ": No space left on device; give a --checkpoint-dir that all ranks can write to");
  }
  FullDisk disk(std::size(kOperations), ENOSPC, /*once=*/false);
  const Checkpoints checkpoints(alone(), options(), disk);
  for (const auto& entry : fs::directory_iterator(root_))
    EXPECT_EQ(entry.path().filename(), ".lock");
}

TEST_F(Checkpoint, NamesAFolderThatCannotBeCreated) {
  root_ = "/proc/none/runs";
  EXPECT_TRUE(contains(resume_error(), "/proc/none/runs"));
  folder_.write("file", "");
  root_ = folder_ / "file";
  EXPECT_TRUE(contains(resume_error(), "file' is not a folder"));
}

}  // namespace
}  // namespace torchbridge::train
