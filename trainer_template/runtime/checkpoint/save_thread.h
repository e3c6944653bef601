// One save of a checkpoint in a separate thread: copies and writes this rank's shards; rank 0
// completes the checkpoint when all ranks have written theirs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "bridge/base/result.h"
#include "trainer_template/runtime/checkpoint/snapshot.h"
#include "trainer_template/runtime/checkpoint_format/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/publish.h"
#include "trainer_template/runtime/process_group/heartbeat.h"

namespace torchbridge::train {

struct SaveRequest {
  FileLayer& files;
  // The same on all ranks; `temporary` is unique to this save.
  std::filesystem::path root, temporary;
  Snapshot& snapshot;  // after take(); nothing else uses it until wait_written()
  Manifest manifest;   // without its files; of rank 0
  Retention retention;
  // Renames complete checkpoints after this step to step-N.aside; of rank 0.
  std::optional<std::int64_t> resumed_from;
  double bytes_per_s = 0;  // of this rank; 0: no limit
  // After the copy, the thread runs at a lower priority than the training.
  bool low_priority = false;
  int rank = 0;
  // Carries the records of the ranks to rank 0; null with one rank.
  std::shared_ptr<Heartbeat> link;
  std::string name;  // of the records, unique to this save
  // For the records of other ranks, once all have written theirs.
  std::chrono::milliseconds report_timeout = std::chrono::seconds(30);
};

// Does not use the process group, which training uses meanwhile. Only the constructor
// throws: TrainError, if the system cannot start a thread.
class SaveThread {
 public:
  explicit SaveThread(SaveRequest request);
  // Cancels the save at the next block of 4 MiB. Rank 0 finishes a publish() that it has started.
  ~SaveThread() = default;
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  std::int64_t step() const { return request_.manifest.state.step; }
  // Ready when the thread no longer reads tensors of the run in host memory. For tensors on a GPU:
  // Snapshot::copied().
  const std::shared_future<void>& copied() const { return copied_; }
  // Ignores bytes_per_s from now on.
  void lift_rate_limit();
  // Whether the save has ended on this rank.
  bool done() const { return done_; }
  // Whether this rank's shards are written or have failed; then its report is on its way.
  bool written();
  void wait_written();
  // For rank 0, when all ranks have written: a report that does not come soon, or whose rank has
  // closed its connection, fails the save.
  void expect_reports();
  // The same, waits for the end of the save and returns its error, which is printed already; empty
  // if the checkpoint is complete.
  std::string wait();

 private:
  void run(const std::stop_token& stop);
  // What a rank wrote, or why it could not.
  using ShardReport = Result<std::vector<ShardRecord>>;

  ShardReport write_own_shards(const std::stop_token& stop);
  Result<std::vector<ShardReport>> collect_reports(const std::stop_token& stop, ShardReport own);
  void complete(const Result<std::vector<ShardReport>>& reports);
  static std::string first_failure(const std::vector<ShardReport>& reports);
  // Why a report that is expected has not come; empty: it may still.
  std::string missing_report();
  // Waits for `time`, or less if `enough` returns true after a change. Throws if the save is
  // cancelled.
  void pause(
      const std::stop_token& stop, std::chrono::nanoseconds time,
      const std::function<bool()>& enough = [] { return false; });
  void finish(std::string failure);

  const SaveRequest request_;
  std::packaged_task<void()> copy_{[this] { request_.snapshot.copy(); }};
  const std::shared_future<void> copied_ = copy_.get_future().share();
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool written_ = false, rate_limit_lifted_ = false;
  // For the reports of other ranks, once they are expected.
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::atomic<bool> done_ = false;
  std::string failure_;
  std::jthread thread_;  // last member: its thread uses the others
};

}  // namespace torchbridge::train
