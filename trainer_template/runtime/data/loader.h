// Batches in the sampler's order, epoch after epoch, which worker threads make ahead of time.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <c10/core/Device.h>

#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/data/device_copy.h"
#include "trainer_template/runtime/data/epoch_order.h"
#include "trainer_template/runtime/data/sampler.h"

namespace torchbridge::train {

// Changes a batch that is still on the CPU, on the thread that made it: augmentation, normalisation. seeds[i] is for
// sample i and depends on the run's seed, the epoch and the sample's index alone, so that the number of workers and of
// ranks, the batch size and a restart change nothing. Random numbers must come from seeds[i]: the global generators
// belong to the thread that trains.
using BatchTransform = std::function<void(Batch& batch, std::span<const std::uint64_t> seeds)>;

struct LoaderOptions {
  std::int64_t batch_size = 32;  // of each rank; the last batch of an epoch may be smaller
  bool drop_last = false;        // drop that smaller batch
  int workers = 1;               // threads; 0: batches are made by next() itself
  int batches_ahead = 4;         // at most so many are made before next() takes them
  std::int64_t epochs = 1;
  std::int64_t max_batches = -1;   // at most so many from the start position on; -1: no limit
  BatchTransform transform;        // called by several threads at once
  c10::Device device = c10::kCPU;  // where batches go; a GPU: through pinned memory, on streams of the workers
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for one batch
};

// Number of batches that each rank gets from `start` on.
std::int64_t batches_left(const SamplerOptions& sampler, const LoaderOptions& options, SamplerPosition start);

// Collating this sample alone failed. what() is "sample INDEX: REASON"; the original exception is nested in it.
struct SampleError : TrainError {
  SampleError(std::int64_t sample, const std::string& reason)
      : TrainError("sample " + std::to_string(sample) + ": " + reason), index(sample) {}
  std::int64_t index;
};

// For one thread. The data set must outlive it.
class Loader {
 public:
  // `start` may be within an epoch. Throws TrainError when an epoch has no batch for a rank, for impossible options,
  // and when the system starts no more threads.
  Loader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options,
         SamplerPosition start = {});
  // Waits for the batch that each worker is making, at most.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The batches in order, then nothing. The tensors are those that Dataset::collate made, not copies, unless they were
  // copied to a GPU. Throws SampleError for a sample for which Dataset::collate threw, TrainError for a batch that
  // fails as a whole; the next call then returns the next batch. Throws TrainError also for a batch that is not made
  // within options.timeout; the next call then waits for it again.
  std::optional<Batch> next();

  // The batches of one optimizer step: `batches` of them, or fewer where an epoch ends, because an epoch's last step is
  // never filled up with samples of the next one; none at the end. Throws as next() does.
  std::vector<Batch> next_step(std::int64_t batches);

  // Whether next() would return the next `count` batches without a wait, where so many are made ahead. Waits for that,
  // at most `time`. Also true after the timeout of a batch: next() throws the error.
  bool is_ready(std::int64_t count, std::chrono::milliseconds time);

  // For a checkpoint: the position after the last batch that next() returned. Batches made ahead do not count.
  SamplerPosition position() const { return position_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct BatchPlan {  // which samples a batch consists of
    std::int64_t epoch = 0;
    SamplerPosition next;
    std::vector<std::int64_t> indices;
  };
  struct Made {
    DeviceCopy::CopyingBatch batch;
    std::exception_ptr error;
  };

  BatchPlan plan(std::int64_t number);
  std::shared_ptr<const EpochOrder> order(std::int64_t epoch);
  Made make(std::int64_t number, const DeviceCopy& copy);
  Batch collate(const BatchPlan& plan) const;
  Made wait_for(std::int64_t number, Clock::time_point deadline);
  void start_workers();
  void stop_workers();
  void work();

  const Dataset& dataset_;
  const SamplerOptions sampler_;
  const LoaderOptions options_;
  const SamplerPosition start_;
  std::int64_t total_ = 0;

  std::mutex order_mutex_;  // apart from mutex_, because a list of 10^8 samples takes seconds to make
  // Of two epochs, because at the end of one some workers are in the next already.
  std::array<std::pair<std::int64_t, std::shared_ptr<const EpochOrder>>, 2> orders_;

  std::mutex mutex_;
  std::condition_variable made_, room_;
  std::map<std::int64_t, Made> ready_;  // by number
  std::int64_t taken_ = 0;              // batches that workers have begun
  std::int64_t delivered_ = 0;
  bool stop_ = false;

  // Since the last batch was returned: when the caller first waited for the next one, and how long in is_ready().
  std::optional<Clock::time_point> asked_;
  Clock::duration waited_{};
  SamplerPosition position_;
  std::optional<DeviceCopy> own_copy_;  // without workers
  std::vector<std::thread> workers_;
};

}  // namespace torchbridge::train
