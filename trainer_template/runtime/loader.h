// Batches in the sampler's order, epoch after epoch, made ahead of time by worker threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <torchbridge/train/dataset.h>
#include <torchbridge/train/sampler.h>

namespace torchbridge::train {

struct LoaderOptions {
  std::int64_t batch_size = 32;   // of each rank; the last batch of an epoch may be smaller
  int workers = 1;                // threads; 0: batches are made by next() itself
  int batches_ahead = 4;          // made at most so many before they are asked for
  std::int64_t epochs = 1;
  std::int64_t max_batches = -1;  // no more than these from here on; -1: no limit
};

// Number of batches that each rank gets from `start` on.
std::int64_t batches_left(const SamplerOptions& sampler, const LoaderOptions& options, SamplerPosition start);

// next() is for one thread. The data set must outlive it.
class Loader {
 public:
  // Begins in the middle of an epoch when `start` says so.
  Loader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options, SamplerPosition start = {});
  // Does not wait for more than the batch that each worker is making.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The batches in order, then nothing. Rethrows what Dataset::collate threw for the batch.
  std::optional<Batch> next();

 private:
  struct Ticket {
    std::int64_t number = 0;
    std::int64_t epoch = 0;
    SamplerPosition next;
    std::vector<std::int64_t> indices;
  };
  struct Made {
    Batch batch;
    std::exception_ptr error;
  };

  std::optional<Ticket> draw();  // REQUIRES: mutex_ is held, or there are no workers
  Made make(const Ticket& ticket) const;
  void work();

  const Dataset& dataset_;
  const SamplerOptions sampler_;
  const LoaderOptions options_;

  std::mutex mutex_;
  std::condition_variable made_, room_;
  std::map<std::int64_t, Made> ready_;  // by number
  std::int64_t drawn_ = 0, delivered_ = 0, total_ = 0;
  bool stop_ = false;

  SamplerPosition position_;            // of the next ticket
  std::vector<std::int64_t> share_;     // of this rank, from share_start_ on, in the epoch of position_
  std::int64_t share_epoch_ = -1, share_start_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace torchbridge::train
