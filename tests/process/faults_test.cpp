// Ranks of a small training are killed or stopped at every phase in turn: the losses stay those of
// the undisturbed run, bit for bit.
#include <sched.h>
#include <sys/mount.h>

#include <csignal>
#include <memory>
#include <set>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;
// Large enough for both ranks to write a part of model.safetensors.
const Words kSmallTraining = {in_build("bin/small_training"),
                              "--width",
                              "400",
                              "--steps",
                              "60",
                              "--every",
                              "2",
                              "--keep",
                              "2"};

// A job with a fault in some of its ranks.
class FaultyJob {
 public:
  FaultyJob(const std::set<int>& victims, const std::string& fault, const Words& words)
      : stops_(fault.ends_with(":stop")) {
    const int port = free_port();
    std::vector<int> sound, faulty;
    for (int rank = 0; rank < kRanks; ++rank)
      (victims.contains(rank) ? faulty : sound).push_back(rank);
    others_ = std::make_unique<Ranks>(sound, kRanks, port, words);
    dying_ = std::make_unique<Ranks>(faulty, kRanks, port, words,
                                     Variables{{"TORCHBRIDGE_FAIL", fault}});
    killed_.assign(faulty.size(), 128 + SIGKILL);
  }
  void expect_end(const std::string& text = "", std::chrono::seconds time = kSoon) {
    if (!stops_) {
      EXPECT_EQ(dying_->wait(kSoon), killed_) << dying_->errors();
    }
    const std::vector<int> codes = others_->wait(time);
    EXPECT_EQ(codes, std::vector<int>(codes.size(), 1)) << others_->errors();
    EXPECT_LE(lines_in(others_->errors()), static_cast<int>(codes.size())) << others_->errors();
    EXPECT_NE(others_->errors().find(text), std::string::npos)
        << "no '" << text << "': " << others_->errors();
    if (stops_) {
      for (std::size_t i = 0; i < killed_.size(); ++i) dying_->kill_rank(i, SIGKILL);
      EXPECT_EQ(dying_->wait(kSoon), killed_) << dying_->errors();
    }
  }

 private:
  static constexpr std::chrono::seconds kSoon{20};
  bool stops_;
  std::unique_ptr<Ranks> others_, dying_;
  std::vector<int> killed_;
};

class Faults : public testing::Test {
 protected:
  Words command(const Words& more) const {
    Words words = kSmallTraining;
    words.insert(words.end(), {"--metrics", metrics_});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words saving(const Words& more = {}) const {
    Words words = command({"--folder", runs_});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void train(const Words& words, int code = 0) {
    Ranks ranks(kRanks, words);
    EXPECT_EQ(ranks.wait(), std::vector<int>(kRanks, code)) << ranks.errors();
    errors_ = ranks.errors();
  }
  std::vector<double> undisturbed() {
    train(command({"--metrics", folder_ / "undisturbed"}));
    return losses(folder_ / "undisturbed");
  }

  // Runs until `fault` happens in these ranks; the others must end by themselves within 20 s, with
  // at most one line each.
  void train_until(const std::set<int>& victims, const std::string& fault, const Words& words) {
    FaultyJob(victims, fault, words).expect_end();
  }

  std::set<std::string> names() const {
    std::set<std::string> all;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(runs_, none))
      all.insert(entry.path().filename().string());
    return all;
  }
  std::set<std::string> temporary() const {
    std::set<std::string> found;
    for (const std::string& name : names()) {
      if (name.starts_with(".tmp-") ||
          (name.starts_with("step-") && !fs::exists(runs_ / name / "DONE")))
        found.insert(name);
    }
    return found;
  }
  void expect_only_checkpoints() const {
    for (const std::string& name : names())
      EXPECT_TRUE(name == ".lock" || name == "latest" || name.starts_with("step-")) << name;
    EXPECT_TRUE(temporary().empty());
  }
  void expect_curve(const std::vector<double>& whole) const {
    if (!fs::exists(metrics_)) return;
    const std::vector<double> so_far = losses(metrics_);
    ASSERT_LE(so_far.size(), whole.size());
    for (std::size_t i = 0; i < so_far.size(); ++i)
      ASSERT_EQ(so_far[i], whole[i]) << "step " << i + 1;
  }

  TemporaryFolder folder_;
  const fs::path runs_ = folder_ / "runs";
  const std::string metrics_ = folder_ / "curve";
  std::string errors_;
};

struct Fault {
  std::set<int> ranks;
  const char* text;
};

// A fault ends each run in turn; every second run saves asynchronously. The last three are in the
// check at the start.
TEST_F(Faults, LoseNoCheckpointAtAnyPhase) {
  const Fault kFaults[] = {
      {{0, 1}, "step:2"},
      {{0}, "step:4"},
      {{1}, "step:5"},
      {{0}, "snapshot:4"},
      {{1}, "snapshot:7"},
      {{0}, "write:4"},
      {{0}, "write:31"},
      {{1}, "write:3"},
      {{1}, "write:12"},
      {{0}, "fsync:3"},
      {{1}, "fsync:6"},
      {{0}, "rename:2"},
      {{0}, "rename:4"},
      {{0}, "directory-fsync:4"},
      {{0}, "directory-fsync:9"},
      {{0}, "DONE:1"},
      {{0}, "DONE:2"},
      {{0}, "prune:1"},
      {{0, 1}, "step:7"},
      {{0}, "exit:1"},
      {{1}, "write:1"},
      {{0}, "rename:1"},
      {{0}, "directory-fsync:2"},
  };
  const std::vector<double> whole = undisturbed();
  bool async = false;
  for (const Fault& fault : kFaults) {
    async = !async;
    SCOPED_TRACE(std::string(fault.text) + " of " + std::to_string(fault.ranks.size()) +
                 " from rank " + std::to_string(*fault.ranks.begin()));
    const std::set<std::string> before = temporary();
    train_until(fault.ranks, fault.text, async ? saving({"--async"}) : saving());
    expect_curve(whole);
    for (const std::string& name : names()) {
      EXPECT_TRUE(name == ".lock" || name == "latest" || name.starts_with("step-") ||
                  name.starts_with(".tmp-"))
          << name;
      EXPECT_FALSE(name.starts_with(".tmp-step-") && before.contains(name)) << name;
    }
  }
  train(saving());
  EXPECT_EQ(losses(metrics_), whole);
  expect_only_checkpoints();
}

TEST_F(Faults, RejectsAnUnknownFailpoint) {
  for (const char* text : {"wirte:1", "write", "write:0", "write:1:halt"}) {
    Ranks alone(1, command({}), {{"TORCHBRIDGE_FAIL", text}});
    EXPECT_EQ(alone.wait(), std::vector<int>{2});
    EXPECT_TRUE(
        contains(alone.errors(), std::string("TORCHBRIDGE_FAIL='") + text + "': expected PHASE:N"));
  }
}

// From its first contact with rank 0 on, long before the time to join is over. The jobs run at the
// same time: they mostly wait.
TEST_F(Faults, AStopOfEitherRankDuringTheStartEndsTheOtherWhichNamesIt) {
  const Fault kFaults[] = {{{0}, "publish:1:stop"}, {{0}, "heartbeat:1:stop"},
                           {{0}, "join:1:stop"},    {{1}, "join:1:stop"},
                           {{0}, "verdict:1:stop"}, {{1}, "verdict:1:stop"},
                           {{0}, "connect:1:stop"}, {{1}, "connect:1:stop"}};
  std::vector<FaultyJob> jobs;
  for (const Fault& fault : kFaults)
    jobs.emplace_back(fault.ranks, fault.text, command({"--timeout", "60"}));
  // The heartbeat's two seconds and four more for an answer of the store, and the start of all
  // jobs.
  constexpr std::chrono::seconds kTime{2 + 4 + 10};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::string stopped = "rank " + std::to_string(*kFaults[i].ranks.begin());
    SCOPED_TRACE(kFaults[i].text + std::string(" of ") + stopped);
    jobs[i].expect_end(stopped, kTime);
  }
  EXPECT_FALSE(fs::exists(metrics_));
}

// The jobs run at the same time: they mostly wait.
TEST_F(Faults, EndTheOtherRanksInTimeBeforeTheRendezvous) {
  const Fault kFaults[] = {{{0}, "bind:1"}, {{0}, "publish:1"}, {{0}, "join:1"}, {{1}, "join:1"}};
  std::vector<FaultyJob> jobs;
  for (const Fault& fault : kFaults)
    jobs.emplace_back(fault.ranks, fault.text, command({"--timeout", "5"}));
  for (FaultyJob& job : jobs) job.expect_end();
  EXPECT_FALSE(fs::exists(metrics_));
}

// Where no launcher ends the others.
TEST_F(Faults, AKillOfRankOneDuringTheStartEndsRankZeroWhichNamesIt) {
  const Fault kFaults[] = {{{1}, "join:1"}, {{1}, "verdict:1"}, {{1}, "connect:1"}};
  std::vector<FaultyJob> jobs;
  for (const Fault& fault : kFaults)
    jobs.emplace_back(fault.ranks, fault.text, command({"--timeout", "60"}));
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(kFaults[i].text);
    jobs[i].expect_end("the connection to rank 1");
  }
}

TEST_F(Faults, AKillOfRankZeroDuringTheStartEndsRankOneWhichNamesIt) {
  const int port = free_port();
  Ranks zero({0}, 3, port, command({"--timeout", "60"}));  // rank 2 is missing
  Ranks one({1}, 3, port, command({"--timeout", "60"}), {{"TORCHBRIDGE_FAIL", "verdict:1:stop"}});
  ASSERT_TRUE(eventually([&] { return one.stopped(0); }));
  zero.kill_rank(0, SIGKILL);
  one.kill_rank(0, SIGCONT);
  EXPECT_EQ(one.wait(std::chrono::seconds(10)), std::vector<int>{1});
  EXPECT_TRUE(contains(one.errors(), "the connection to rank 0")) << one.errors();
  EXPECT_EQ(lines_in(one.errors()), 1) << one.errors();
}

// The other has ended: mpirun would wait for the stopped one for ever.
TEST_F(Faults, ARankThatIsStoppedAfterItHasLeftTheGroupIsKilled) {
  const int port = free_port();
  Ranks first({0}, kRanks, port, command({}));
  Ranks second({1}, kRanks, port, command({}), {{"TORCHBRIDGE_FAIL", "left:1:stop"}});
  EXPECT_EQ(first.wait(), std::vector<int>{0}) << first.errors();
  // The heartbeat's two seconds and two more.
  EXPECT_EQ(second.wait(std::chrono::seconds(2 + 2 + 6)), std::vector<int>{128 + SIGKILL});
  EXPECT_EQ(losses(metrics_).size(), 60u);
}

TEST_F(Faults, AStoppedRankEndsTheRunAndLosesNothing) {
  const std::vector<double> whole = undisturbed();
  train_until({1}, "write:9:stop", saving());
  train_until({0}, "write:31:stop", saving({"--async"}));
  train_until({1}, "step:9:stop", saving({"--async"}));
  expect_curve(whole);
  train(saving());
  EXPECT_EQ(losses(metrics_), whole);
  expect_only_checkpoints();
}

// Each file operation takes a random time on each rank, as on a network file system.
TEST_F(Faults, SlowFilesChangeNothing) {
  const std::vector<double> whole = undisturbed();
  train_until({1}, "write:8", saving({"--async", "--slow-files", "10"}));
  train_until({0}, "fsync:9", saving({"--slow-files", "10"}));
  train(saving({"--async", "--slow-files", "3"}));
  EXPECT_EQ(losses(metrics_), whole);
  expect_only_checkpoints();
}

// As on another node that sees the files of rank 0 a second later.
TEST_F(Faults, WaitsForAFolderThatAppearsLate) {
  const int port = free_port();
  const Words late = command({"--folder", folder_ / "late", "--steps", "4"});
  Ranks first({0}, kRanks, port, saving({"--steps", "4"}));
  Ranks second({1}, kRanks, port, late);
  // The lock and the folder that check_saves() creates.
  ASSERT_TRUE(eventually([&] { return names().size() > 1; }));
  fs::create_directory_symlink(runs_, folder_ / "late");
  EXPECT_EQ(first.wait(), std::vector<int>{0}) << first.errors();
  EXPECT_EQ(second.wait(), std::vector<int>{0}) << second.errors();
}

// gloo may write to a rank that has died a moment ago.
TEST_F(Faults, SigpipeEndsNoRank) {
  Ranks ranks(kRanks, command({"--steps", "200"}));
  ASSERT_TRUE(eventually([&] { return fs::exists(metrics_); }));
  for (int rank = 0; rank < kRanks; ++rank) ranks.kill_rank(rank, SIGPIPE);
  EXPECT_EQ(ranks.wait(), (std::vector<int>{0, 0})) << ranks.errors();
}

TEST_F(Faults, EachRankWritesItsZeroState) {
  const Words words = saving({"--zero", "--async"});
  train(command({"--zero", "--metrics", folder_ / "undisturbed"}));
  train_until({1}, "write:5", words);
  train_until({0}, "DONE:3", words);
  train(words);
  EXPECT_EQ(losses(metrics_), losses(folder_ / "undisturbed"));
}

TEST_F(Faults, KeepsEveryNthCheckpoint) {
  train(saving({"--keep-every", "20"}));
  std::set<std::string> steps = names();
  std::erase_if(steps, [](const std::string& name) { return !name.starts_with("step-"); });
  EXPECT_EQ(steps, (std::set<std::string>{"step-00000020", "step-00000040", "step-00000058",
                                          "step-00000060"}));
  EXPECT_EQ(fs::read_symlink(runs_ / "latest"), "step-00000060");
}

// A disk with room for one checkpoint and a half.
class FullDisk : public Faults {
 protected:
  void SetUp() override {
    fs::create_directory(runs_);
    const bool mounted = unshare(CLONE_NEWNS) == 0 &&
                         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("tmpfs", runs_.c_str(), "tmpfs", 0, "size=6m") == 0;
    if (!mounted) GTEST_SKIP() << "cannot mount a small disk: needs root";
  }
  void TearDown() override { umount2(runs_.c_str(), MNT_DETACH); }
};

TEST_F(FullDisk, TrainingContinuesAndOnlyTheLastSaveIsAnError) {
  const std::vector<double> whole = undisturbed();
  train(saving({"--steps", "8", "--async"}), 1);
  EXPECT_EQ(losses(metrics_), std::vector<double>(whole.begin(), whole.begin() + 8));
  EXPECT_TRUE(contains(errors_, "checkpoint of step 4 is not saved: rank "));
  EXPECT_TRUE(contains(errors_, "No space left on device"));
  EXPECT_TRUE(contains(errors_, "the last state is not saved: rank "));
  EXPECT_TRUE(contains(errors_, "the newest checkpoint is " + (runs_ / "step-00000002").string()));
  expect_only_checkpoints();

  ASSERT_EQ(mount(nullptr, runs_.c_str(), nullptr, MS_REMOUNT, "size=64m"), 0);
  train(saving());
  EXPECT_EQ(losses(metrics_), whole);
  expect_only_checkpoints();
}

}  // namespace
