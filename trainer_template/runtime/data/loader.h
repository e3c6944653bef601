// Batches in the sampler's order, epoch after epoch, made ahead of time by worker threads.
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

#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/data/device_copy.h"
#include "trainer_template/runtime/data/epoch_order.h"
#include "trainer_template/runtime/data/sampler.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {

// Changes a batch that is still on the CPU, on the thread that made it: augmentation, normalisation. seeds[i] is for
// sample i and depends on the run's seed, the epoch and the sample's index alone, so that the number of workers and of
// ranks, the batch size and a restart change nothing. Random numbers must come from it: the global generators belong to
// the thread that trains.
using BatchTransform = std::function<void(Batch& batch, std::span<const std::uint64_t> seeds)>;

struct LoaderOptions {
  std::int64_t batch_size = 32;  // of each rank; the last batch of an epoch may be smaller
  bool drop_last = false;        // leave that smaller batch out
  int workers = 1;               // threads; 0: batches are made by next() itself
  int batches_ahead = 4;         // made at most so many before they are asked for
  std::int64_t epochs = 1;
  std::int64_t max_batches = -1;   // no more than these from here on; -1: no limit
  BatchTransform transform;        // called by several threads at once
  c10::Device device = c10::kCPU;  // where batches go; a GPU: through pinned memory, on streams of the workers
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for one batch
};

// Number of batches that each rank gets from `start` on.
std::int64_t batches_left(const SamplerOptions& sampler, const LoaderOptions& options, SamplerPosition start);

// Collating this sample alone failed; what() says "sample INDEX: " and why, and what was thrown is nested in it.
struct SampleError : TrainError {
  SampleError(std::int64_t sample, const std::string& reason)
      : TrainError("sample " + std::to_string(sample) + ": " + reason), index(sample) {}
  std::int64_t index;
};

// For one thread. The data set must outlive it.
class Loader {
 public:
  // Begins in the middle of an epoch when `start` says so. Throws TrainError when an epoch has no batch for a rank, for
  // options that cannot be, and when the system starts no more threads.
  Loader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options,
         SamplerPosition start = {});
  // Does not wait for more than the batch that each worker is making.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The batches in order, then nothing. The tensors are those that Dataset::collate made, not copies, unless they went
  // to a GPU. Throws SampleError for a sample that Dataset::collate threw for, TrainError for a batch that fails as a
  // whole; the call after that goes on with the next batch. TrainError too for one that is not there in time, which the
  // call after that waits for again.
  std::optional<Batch> next();

  // The batches of one optimizer step: `batches` of them, or fewer where an epoch ends, for an epoch's last step is
  // never filled up with samples of the next one; none at the end. Throws as next() does.
  std::vector<Batch> next_step(std::int64_t batches);

  // Whether next() would give the next `count` batches without a wait, as far as batches are made ahead. Waits for
  // that, but no longer than `time`. Also yes when a batch was waited for too long: next() has the error.
  bool is_ready(std::int64_t count, std::chrono::milliseconds time);

  // For a checkpoint: where the sample after the last batch that next() gave stands. What was made ahead does not
  // count.
  SamplerPosition position() const { return position_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Ticket {  // what a batch consists of
    std::int64_t epoch = 0;
    SamplerPosition next;
    std::vector<std::int64_t> indices;
  };
  struct Made {
    DeviceCopy::Copying batch;
    std::exception_ptr error;
  };

  Ticket ticket(std::int64_t number);
  std::shared_ptr<const EpochOrder> order(std::int64_t epoch);
  Made make(std::int64_t number, const DeviceCopy& copy);
  Batch collate(const Ticket& ticket) const;
  Made wait_for(std::int64_t number, Clock::time_point deadline);
  void start_workers();
  void stop_workers();
  void work();

  const Dataset& dataset_;
  const SamplerOptions sampler_;
  const LoaderOptions options_;
  const SamplerPosition start_;
  std::int64_t total_ = 0;

  std::mutex order_mutex_;  // not held while batches are handed over: a list of 10^8 takes seconds
  // Of the last two epochs: at the end of an epoch some workers are in the next one already.
  std::array<std::pair<std::int64_t, std::shared_ptr<const EpochOrder>>, 2> orders_;

  std::mutex mutex_;
  std::condition_variable made_, room_;
  std::map<std::int64_t, Made> ready_;  // by number
  std::int64_t taken_ = 0;              // numbers that workers have taken
  std::int64_t delivered_ = 0;
  bool stop_ = false;

  // Since the last batch was given: when the next one was first asked for, and the time that is_ready() has waited for
  // it.
  std::optional<Clock::time_point> asked_;
  Clock::duration waited_{};
  SamplerPosition position_;
  std::optional<DeviceCopy> own_copy_;  // without workers
  std::vector<std::thread> workers_;
};

}  // namespace torchbridge::train
