// Saving while the disk fails, and while training continues.
#include "trainer_template/runtime/checkpoint/save_thread.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>
#include <thread>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchbridge/checkpoint.h>
#include <torchbridge/group_options.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>

#include "tests/support/alone.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::string bytes(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), std::ssize(bytes));
  return bytes;
}

// A model whose value is the step.
class Saving : public testing::Test {
 protected:
  Saving() { options_.folder = root_; }

  void save(Checkpoints& checkpoints, std::int64_t step) {
    checkpoints.wait_copied();
    set(step);
    checkpoints.save({.step = step}, model_, *optimizer_);
  }
  void set(std::int64_t step) { weight_.detach().fill_(static_cast<double>(step)); }
  // The value in the newest checkpoint, or -1.
  double loaded() {
    set(-1);
    CheckpointOptions options = options_;
    Checkpoints(alone(), options).resume(model_, *optimizer_);
    return weight_.detach()[0].item<double>();
  }
  // All names but the lock and the link.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(root_)) {
      const std::string name = entry.path().filename().string();
      if (name != ".lock" && name != "latest") all.push_back(name);
    }
    std::ranges::sort(all);
    return all;
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_ / "runs";
  CheckpointOptions options_;
  at::Tensor weight_ = at::ones({1000}).set_requires_grad(true);
  ModelTensors model_{.parameters = {{"weight", weight_}}, .buffers = {}};
  std::unique_ptr<Optimizer> optimizer_ = make_adamw(model_.parameters, {});
};

// Every operation fails in turn with each error of a disk, once or permanently: training continues,
// the old checkpoint stays, and the next save works.
TEST_F(Saving, SurvivesAFailureOfAnyFileOperation) {
  for (const int error : {ENOSPC, EIO, EDQUOT, EROFS}) {
    for (const bool once : {true, false}) {
      bool failed = true;
      for (int good = 0; failed; ++good) {
        SCOPED_TRACE(std::string(std::strerror(error)) + " at operation " + std::to_string(good) +
                     (once ? ", once" : ""));
        ASSERT_LT(good, 100);
        fs::remove_all(root_);
        FullDisk disk(1000, error, once);
        {
          Checkpoints first(alone(), options_, disk);
          save(first, 1);
        }
        FullDisk full(error, once);
        testing::internal::CaptureStderr();
        {
          Checkpoints checkpoints(alone(), options_, full);
          full.fill(good);
          save(checkpoints, 2);
          failed = full.has_failed();
          EXPECT_EQ(complete_steps(root_).back(), 1);
        }
        const std::string said = testing::internal::GetCapturedStderr();
        std::error_code ignored;
        // The link is tried again.
        const bool is_mended =
            once && said.empty() && fs::read_symlink(root_ / "latest", ignored) == step_folder(2);
        EXPECT_EQ(std::ranges::count(said, '\n'), failed && !is_mended ? 1 : 0) << said;
        EXPECT_TRUE(!failed || is_mended || contains(said, std::strerror(error)));
        const double newest = loaded();
        EXPECT_TRUE(newest == 2 || (failed && newest == 1)) << newest;

        full.free();
        {
          Checkpoints checkpoints(alone(), options_, full);
          save(checkpoints, 3);
          checkpoints.finish();
        }
        EXPECT_EQ(loaded(), 3);
        for (const std::string& name : names()) EXPECT_TRUE(name.starts_with("step-")) << name;
      }
    }
  }
}

TEST_F(Saving, RetriesAtTheNextSaveAndLeavesNoFilesBehind) {
  FullDisk disk(ENOSPC, false);
  Checkpoints checkpoints(alone(), options_, disk);
  disk.fill(4);
  save(checkpoints, 1);
  EXPECT_TRUE(names().empty());
  EXPECT_TRUE(checkpoints.last_saved().empty());
  disk.free();
  save(checkpoints, 1);
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000001"});
  checkpoints.finish();
}

TEST_F(Saving, FailsIfTheLastStateIsNotSaved) {
  FullDisk disk(1000, ENOSPC, false);
  Checkpoints checkpoints(alone(), options_, disk);
  save(checkpoints, 1);
  FullDisk full(ENOSPC, false);
  TemporaryFolder other;
  options_.folder = other / "runs";
  Checkpoints failing(alone(), options_, full);
  full.fill(2);
  EXPECT_TRUE(contains(error_of([&] { failing.save_last({.step = 2}, model_, *optimizer_); }),
                       "the last state is not saved: rank 0: cannot"));
  full.free();
  EXPECT_EQ(error_of([&] { failing.save_last({.step = 2}, model_, *optimizer_); }), "");
  EXPECT_EQ(error_of([&] { checkpoints.finish(); }), "");
}

class AsynchronousSaving : public Saving {
 protected:
  AsynchronousSaving() { options_.async = true; }
};

TEST_F(AsynchronousSaving, SavesTheStateOfItsStepDuringTraining) {
  SlowDisk disk;
  {
    Checkpoints checkpoints(alone(), options_, disk);
    disk.hold();
    save(checkpoints, 1);
    ASSERT_TRUE(disk.has_begun());
    set(77);  // must not be in the checkpoint
    EXPECT_TRUE(complete_steps(root_).empty());
    EXPECT_TRUE(checkpoints.last_saved().empty());
    disk.go_on();
    checkpoints.finish();
    EXPECT_EQ(checkpoints.last_saved(), root_ / step_folder(1));
  }
  EXPECT_EQ(loaded(), 1);
}

// The copy of this state takes longer than the next step takes to change a part of it.
TEST_F(AsynchronousSaving, IsNotChangedByTheFollowingSteps) {
  ModelTensors model;
  for (int i = 0; i < 48; ++i) {
    model.parameters.emplace_back("weight" + std::to_string(i),
                                  at::ones({1 << 18}).set_requires_grad(true));
    model.parameters.back().second.mutable_grad() = at::full({1 << 18}, 0.1 + i);
  }
  const auto optimizer = make_adamw(model.parameters, {.lr = 0.01});
  const auto saved = [&](const std::string& way, std::int64_t step, bool async) {
    CheckpointOptions options = options_;
    options.folder = folder_ / way;
    options.async = async;
    Checkpoints checkpoints(alone(), options);
    checkpoints.save({.step = step}, model, *optimizer);
    for (int i = 0; async && i < 5; ++i) optimizer->step();
    checkpoints.finish();
    return checkpoints.last_saved();
  };
  for (std::int64_t step = 1; step <= 3; ++step) {
    optimizer->step();
    const fs::path expected = saved("synchronous", step, false),
                   folder = saved("asynchronous", step, true);
    for (const auto& entry : fs::directory_iterator(expected)) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(content(folder / name) == content(expected / name))
          << name << " of step " << step;
    }
  }
}

TEST_F(AsynchronousSaving, AllowsWritesAfterWaitCopied) {
  SlowDisk disk;
  {
    Checkpoints checkpoints(alone(), options_, disk);
    disk.hold();
    save(checkpoints, 1);
    checkpoints.wait_copied();
    set(77);
    disk.go_on();
    checkpoints.finish();
  }
  EXPECT_EQ(loaded(), 1);
}

TEST_F(AsynchronousSaving, IsSkippedWhileAnotherOneRuns) {
  options_.on_pending_save = CheckpointOptions::OnPendingSave::kSkip;
  SlowDisk disk;
  Checkpoints checkpoints(alone(), options_, disk);
  disk.hold();
  save(checkpoints, 1);
  testing::internal::CaptureStderr();
  save(checkpoints, 2);
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(),
                       "checkpoint of step 2 skipped: the save of step 1 is still running"));
  disk.go_on();
  checkpoints.finish();
  save(checkpoints, 3);
  checkpoints.finish();
  EXPECT_EQ(complete_steps(root_), (std::vector<std::int64_t>{3, 1}));
}

// Regression: an earlier version skipped it.
TEST_F(AsynchronousSaving, TheLastStateIsNeverSkipped) {
  options_.on_pending_save = CheckpointOptions::OnPendingSave::kSkip;
  SlowDisk disk;
  Checkpoints checkpoints(alone(), options_, disk);
  disk.hold();
  save(checkpoints, 1);
  std::jthread later([&] {
    EXPECT_TRUE(disk.has_begun());
    disk.go_on();
  });
  checkpoints.save_last({.step = 2}, model_, *optimizer_);
  EXPECT_EQ(complete_steps(root_), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(checkpoints.last_saved(), root_ / step_folder(2));
}

TEST_F(AsynchronousSaving, WaitsForThePreviousOne) {
  SlowDisk disk;
  Checkpoints checkpoints(alone(), options_, disk);
  disk.hold();
  save(checkpoints, 1);
  std::jthread later([&] {
    EXPECT_TRUE(disk.has_begun());
    disk.go_on();
  });
  save(checkpoints, 2);
  EXPECT_EQ(checkpoints.last_saved(), root_ / step_folder(1));
  checkpoints.finish();
  EXPECT_EQ(complete_steps(root_), (std::vector<std::int64_t>{2, 1}));
}

TEST_F(AsynchronousSaving, SavesAStepOnce) {
  SlowDisk disk;
  Checkpoints checkpoints(alone(), options_, disk);
  disk.hold();
  save(checkpoints, 1);
  save(checkpoints, 1);  // does not wait, or this would hang
  disk.go_on();
  checkpoints.finish();
  EXPECT_EQ(complete_steps(root_), std::vector<std::int64_t>{1});
}

TEST_F(AsynchronousSaving, IsCancelledByTheDestructor) {
  FullDisk disk(1000, ENOSPC, false);
  options_.bytes_per_s = 1;  // it would take hours
  {
    Checkpoints checkpoints(alone(), options_, disk);
    save(checkpoints, 1);
  }
  EXPECT_TRUE(complete_steps(root_).empty());
  loaded();
  EXPECT_TRUE(names().empty()) << "the next run removes what was begun";
}

TEST_F(AsynchronousSaving, DoesNotExceedItsBandwidth) {
  options_.bytes_per_s = 100'000;
  FullDisk disk(1000, ENOSPC, false);
  Checkpoints checkpoints(alone(), options_, disk);
  const auto begin = std::chrono::steady_clock::now();
  save(checkpoints, 1);
  checkpoints.finish();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  std::uint64_t bytes = 0;
  const auto manifest = read_manifest(checkpoints.last_saved());
  ASSERT_TRUE(manifest);
  for (const FileRecord& file : manifest->files) bytes += file.size;
  EXPECT_GE(time.count(), static_cast<double>(bytes) / options_.bytes_per_s);
}

// The other rank has a connection and sends nothing, as one whose report the kernel keeps back.
TEST(SavingWithoutReports, ReportsThatAreExpectedHaveADeadline) {
  const TemporaryFolder folder;
  const std::shared_ptr<Heartbeat> link = std::move(
      *Heartbeat::serve("127.0.0.1", 2, {.timeout = std::chrono::milliseconds(0), .token = "t"}));
  FullDisk disk(1000, ENOSPC, false);
  Snapshot snapshot;
  testing::internal::CaptureStderr();
  SaveThread save({.files = disk,
                   .root = folder / "runs",
                   .temporary = folder / "runs" / ".tmp-save",
                   .snapshot = snapshot,
                   .manifest = {.state = {.step = 1}},
                   .retention = {},
                   .resumed_from = {},
                   .link = link,
                   .name = "save",
                   .report_timeout = std::chrono::milliseconds(100)});
  save.wait_written();
  EXPECT_FALSE(save.done()) << "reports that nobody expects yet have no deadline";
  const std::string expected = "the reports of other ranks did not come within 0.1 s";
  EXPECT_EQ(save.wait(), expected);
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(),
                       "checkpoint of step 1 is not saved: " + expected));
}

class StoreWithHeartbeat : public c10d::HashStore {
 public:
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    const std::string text(value.begin(), value.end());
    if (key.ends_with("/heartbeat")) port_.set_value(std::stoi(text.substr(text.rfind(' '))));
    c10d::HashStore::set(key, value);
  }
  int port() { return port_.get_future().get(); }

 private:
  std::promise<int> port_;
};

// Ends this process's connections to it, and no thread notices at once.
void shut_down_connections_to(int port) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    const bool is_ip = peer.ss_family == AF_INET || peer.ss_family == AF_INET6;
    // At one place in both.
    if (is_ip && reinterpret_cast<sockaddr_in&>(peer).sin_port == htons(port))
      shutdown(descriptor, SHUT_RDWR);
  }
}

// Two ranks, threads of this process, of which rank 1 has no connection for reports.
TEST(SavingWithoutReports, ASaveThatIsNotWaitedForFailsAndDoesNotStopAllLaterOnes) {
  constexpr std::chrono::seconds kLong{25};  // less than the limit of reports that are on their way
  const TemporaryFolder folder;
  const auto store = c10::make_intrusive<StoreWithHeartbeat>();
  const auto train = [&](int rank) {
    ProcessGroup group = init_process_group(
        EnvMap(), {.ranks = {rank, 2}, .heartbeat_timeout = std::chrono::milliseconds(0)}, store);
    if (rank == 1) shut_down_connections_to(store->port());
    group.barrier();
    CheckpointOptions options;
    options.folder = folder / "runs";
    options.async = true;
    options.on_pending_save = CheckpointOptions::OnPendingSave::kSkip;
    const at::Tensor weight = at::ones({10}).set_requires_grad(true);
    const ModelTensors model{.parameters = {{"weight", weight}}, .buffers = {}};
    const auto optimizer = make_adamw(model.parameters, {});
    Checkpoints checkpoints(group, options);
    const auto runs = [&] {  // the first save, once it has begun
      const auto entries = fs::directory_iterator(options.folder);
      return std::any_of(begin(entries), end(entries), [](const auto& entry) {
        return bool(contains(entry.path().filename(), step_folder(1)));
      });
    };
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    const auto is_late = [&] { return std::chrono::steady_clock::now() > deadline; };
    checkpoints.save({.step = 1}, model, *optimizer);
    while (!runs() && !is_late()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::int64_t step = 2; group.minimum(runs() && !is_late() ? 1 : 0) == 1; ++step) {
      checkpoints.save({.step = step}, model, *optimizer);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    group.leave();
  };
  testing::internal::CaptureStderr();
  {
    const std::jthread one(train, 1);
    train(0);
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(lines,
                       "checkpoint of step 1 is not saved: the report of rank 1 did not "
                       "come: its connection to rank 0 is closed"));
}

}  // namespace
}  // namespace torchbridge::train
