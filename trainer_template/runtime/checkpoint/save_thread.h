// One save of a checkpoint, in a thread of its own: this rank's shard is copied and written, and rank 0 completes the
// checkpoint when all ranks have written theirs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/checkpoint/snapshot.h"
#include "trainer_template/runtime/checkpoint_format/publish.h"

namespace torchbridge::train {

struct SaveRequest {
  FileLayer& files;
  std::filesystem::path root, temporary;  // the same on all ranks; `temporary` is no other save's
  Snapshot& snapshot;                     // taken; left alone by others until wait_written()
  Manifest manifest;                      // but for its files; of rank 0
  Retention retention;
  std::optional<std::int64_t>
      resumed_from;           // complete ones after this step are put aside before this one counts; of rank 0
  double bytes_per_s = 0;     // of this rank; 0: no limit
  bool low_priority = false;  // once the state is copied, training has the processor first
  int rank = 0, world_size = 1;
  c10::intrusive_ptr<c10d::Store> store;  // by which ranks tell rank 0 what they have written; not used with one rank
  std::string key;                        // in the store, no other save's
};

// The group of the ranks is not used: training goes on with it. Nothing throws but the constructor: TrainError, for
// want of a thread.
class SaveThread {
 public:
  explicit SaveThread(SaveRequest request);
  // Gives up what is not written yet, at the next block of a few MiB; rank 0, once it has begun to publish, brings that
  // to its end.
  ~SaveThread() = default;
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  std::int64_t step() const { return request_.manifest.state.step; }
  // Ready when the thread reads no tensor of the run in host memory any more; Snapshot::copied() has those on a GPU.
  const std::shared_future<void>& copied() const { return copied_; }
  // Without the limit of bytes a second from here on.
  void lift_rate_limit();
  // Whether the thread has nothing more to do.
  bool done() const { return done_; }
  // Returns when this rank's shard is written, or could not be, and rank 0 can know it.
  void wait_written();
  // Of rank 0: waits for the outcome of the whole, and returns why it failed; empty when the checkpoint is complete. It
  // was printed by then.
  std::string wait();

 private:
  void run(const std::stop_token& stop);
  std::string write_own_shards(const std::stop_token& stop);
  std::vector<std::string> gather(const std::stop_token& stop, std::string own);
  void complete(const std::vector<std::string>& reports);
  // At an end before that: when the save is given up, which it throws, or `enough` says so after a change.
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
  std::atomic<bool> done_ = false;
  std::string failure_;
  std::jthread thread_;  // the last one: it uses the others
};

}  // namespace torchbridge::train
