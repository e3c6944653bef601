#include "trainer_template/runtime/data/loader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "trainer_template/runtime/data/mix_bits.h"

namespace torchbridge::train {
namespace {

std::int64_t batches_in(std::int64_t samples, const LoaderOptions& options) {
  return options.drop_last ? samples / options.batch_size : (samples + options.batch_size - 1) / options.batch_size;
}

std::vector<std::uint64_t> seeds_of(std::uint64_t seed, std::int64_t epoch, std::span<const std::int64_t> indices) {
  // Keeps these seeds different from the order's keys, which come from the same seed and epoch.
  constexpr std::uint64_t kSampleSeeds = 0x73616d706c657321;
  const std::uint64_t of_epoch = random_bits(mix_bits(seed ^ kSampleSeeds), static_cast<std::uint64_t>(epoch));
  std::vector<std::uint64_t> seeds;
  seeds.reserve(indices.size());
  for (const std::int64_t index : indices) seeds.push_back(random_bits(of_epoch, static_cast<std::uint64_t>(index)));
  return seeds;
}

std::string listed(std::span<const std::int64_t> indices) {
  constexpr std::size_t kShown = 8;
  std::string text = "samples";
  for (const std::int64_t index : indices.first(std::min(indices.size(), kShown))) text += " " + std::to_string(index);
  return indices.size() > kShown ? text + " ..." : text;
}

void check(const LoaderOptions& options) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw TrainError(std::string("a loader's ") + name + " is " + std::to_string(value) + ": expected at least " +
                       std::to_string(least));
  };
  at_least("batch_size", options.batch_size, 1);
  at_least("workers", options.workers, 0);
  at_least("batches_ahead", options.batches_ahead, 1);
  at_least("epochs", options.epochs, 0);
}

// REQUIRES: an exception is being handled.
std::string reason() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

// Throws SampleError for the first of these samples that cannot be collated alone.
void find_bad_sample(const Dataset& dataset, std::span<const std::int64_t> indices) {
  for (const std::int64_t& index : indices) {
    try {
      dataset.collate({&index, 1});
    } catch (...) {
      std::throw_with_nested(SampleError(index, reason()));
    }
  }
}

}  // namespace

std::int64_t batches_left(const SamplerOptions& sampler, const LoaderOptions& options, SamplerPosition start) {
  std::int64_t total = 0;
  if (start.epoch < options.epochs) {
    total = batches_in(samples_per_rank(sampler, start.consumed), options) +
            (options.epochs - start.epoch - 1) * batches_in(samples_per_rank(sampler), options);
  }
  return options.max_batches < 0 ? total : std::min(total, options.max_batches);
}

Loader::Loader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options,
               SamplerPosition start)
    : dataset_(dataset), sampler_(sampler), options_(options), start_(start), position_(start) {
  check(options_);
  if (batches_in(samples_per_rank(sampler_), options_) == 0) {
    throw TrainError("the data set has " + std::to_string(sampler_.size) + " samples, too few for " +
                     std::to_string(sampler_.world_size) + " ranks" +
                     (options_.drop_last ? " with batches of " + std::to_string(options_.batch_size) : ""));
  }
  total_ = batches_left(sampler_, options_, start);
  if (options_.workers == 0) own_copy_.emplace(options_.device);
  start_workers();
}

Loader::~Loader() { stop_workers(); }

void Loader::start_workers() {
  try {
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop_workers();
    throw TrainError("cannot start data loading thread " + std::to_string(workers_.size() + 1) + " of " +
                     std::to_string(options_.workers) + ": " + error.code().message());
  }
}

void Loader::stop_workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::optional<Batch> Loader::next() {
  if (delivered_ == total_) return std::nullopt;
  const auto now = Clock::now();
  const auto asked = asked_.value_or(now);
  const auto waited = std::exchange(waited_, {});
  asked_.reset();
  Made made = own_copy_ ? make(delivered_++, *own_copy_) : wait_for(delivered_, asked + options_.timeout);
  if (made.error) std::rethrow_exception(made.error);
  Batch batch = DeviceCopy::finish(std::move(made.batch));
  position_ = batch.next;
  batch.waited_s = std::chrono::duration<double>(waited + (Clock::now() - now)).count();
  return batch;
}

std::vector<Batch> Loader::next_step(std::int64_t batches) {
  std::vector<Batch> step;
  while (std::ssize(step) < batches) {
    auto batch = next();
    if (!batch) break;
    step.push_back(std::move(*batch));
    if (step.back().next.epoch != step.back().epoch) break;
  }
  return step;
}

bool Loader::is_ready(std::int64_t count, std::chrono::milliseconds time) {
  if (own_copy_) return true;
  const auto now = Clock::now();
  if (time.count() > 0 && !asked_) asked_ = now;
  const std::int64_t end = std::min(total_, delivered_ + std::min<std::int64_t>(count, options_.batches_ahead));
  std::unique_lock lock(mutex_);
  const auto are_made = [&] {
    for (std::int64_t number = delivered_; number < end; ++number) {
      if (!ready_.contains(number)) return false;
    }
    return true;
  };
  const bool ready = made_.wait_for(lock, time, are_made);
  waited_ += Clock::now() - now;
  return ready || (asked_ && Clock::now() - *asked_ >= options_.timeout);
}

Loader::Made Loader::wait_for(std::int64_t number, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!made_.wait_until(lock, deadline, [&] { return ready_.contains(number); })) {
    throw TrainError("batch " + std::to_string(number) + " since the start was not made within " +
                     std::to_string(options_.timeout.count()) + " ms; check the data set's storage");
  }
  Made made = std::move(ready_.extract(number).mapped());
  ++delivered_;
  lock.unlock();
  room_.notify_one();
  return made;
}

Loader::BatchPlan Loader::plan(std::int64_t number) {
  const auto batches = [&](std::int64_t consumed) {
    return batches_in(samples_per_rank(sampler_, consumed), options_);
  };
  SamplerPosition begin = start_;  // of the epoch, or of its rest
  if (const std::int64_t first = batches(start_.consumed); number >= first) {
    number -= first;
    begin = {start_.epoch + 1 + number / batches(0), 0};
    number %= batches(0);
  }
  const std::int64_t from = number * options_.batch_size;
  const std::int64_t to = std::min(from + options_.batch_size, samples_per_rank(sampler_, begin.consumed));

  BatchPlan plan{.epoch = begin.epoch};
  plan.indices = rank_shard(sampler_, *order(begin.epoch), begin.consumed, from, to);
  // The end of an epoch is the start of the next one, which is the same position at any world size.
  const bool last = number + 1 == batches(begin.consumed);
  plan.next = last ? SamplerPosition{begin.epoch + 1, 0}
                   : SamplerPosition{begin.epoch, begin.consumed + to * sampler_.world_size};
  return plan;
}

std::shared_ptr<const EpochOrder> Loader::order(std::int64_t epoch) {
  const std::lock_guard lock(order_mutex_);
  auto& [cached, order] = orders_[epoch % 2];
  if (!order || cached != epoch) {
    order.reset();  // first, because the lists are large
    order = std::make_shared<const EpochOrder>(sampler_, epoch);
    cached = epoch;
  }
  return order;
}

Loader::Made Loader::make(std::int64_t number, const DeviceCopy& copy) {
  try {
    return {copy.begin(collate(plan(number))), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

Batch Loader::collate(const BatchPlan& plan) const {
  const PinnedBatches pinned(!options_.device.is_cpu());
  Batch batch;
  try {
    batch = dataset_.collate(plan.indices);
  } catch (...) {
    find_bad_sample(dataset_, plan.indices);
    std::throw_with_nested(TrainError(listed(plan.indices) + " cannot be collated: " + reason()));
  }
  batch.epoch = plan.epoch;
  batch.next = plan.next;
  batch.indices = plan.indices;
  if (options_.transform) {
    try {
      options_.transform(batch, seeds_of(sampler_.seed, plan.epoch, plan.indices));
    } catch (...) {
      std::throw_with_nested(TrainError("transform of " + listed(plan.indices) + ": " + reason()));
    }
  }
  return batch;
}

void Loader::work() {
  std::optional<DeviceCopy> copy;
  std::unique_lock lock(mutex_);
  while (true) {
    room_.wait(lock, [&] { return stop_ || taken_ == total_ || taken_ - delivered_ < options_.batches_ahead; });
    if (stop_ || taken_ == total_) return;
    const std::int64_t number = taken_++;
    lock.unlock();
    Made made;
    try {
      if (!copy) copy.emplace(options_.device);
      made = make(number, *copy);
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    ready_.emplace(number, std::move(made));
    made_.notify_one();
  }
}

}  // namespace torchbridge::train
