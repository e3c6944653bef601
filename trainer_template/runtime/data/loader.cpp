#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>
#include <torchbridge/data.h>
#include <torchbridge/skipped_samples.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/data/device_copy.h"
#include "trainer_template/runtime/data/epoch_order.h"
#include "trainer_template/runtime/data/mix_bits.h"
#include "trainer_template/runtime/data/pinned_batches.h"

namespace torchbridge::train {
namespace {

std::int64_t batches_in(std::int64_t samples, const LoaderOptions& options) {
  return options.drop_last ? samples / options.batch_size
                           : (samples + options.batch_size - 1) / options.batch_size;
}

std::vector<std::uint64_t> seeds_of(std::uint64_t seed, std::int64_t epoch,
                                    std::span<const std::int64_t> indices) {
  // Keeps these seeds different from the order's keys, which come from the same seed and epoch.
  constexpr std::uint64_t kSampleSeeds = 0x73616d706c657321;
  const std::uint64_t of_epoch =
      random_bits(mix_bits(seed ^ kSampleSeeds), static_cast<std::uint64_t>(epoch));
  std::vector<std::uint64_t> seeds;
  seeds.reserve(indices.size());
  for (const std::int64_t index : indices)
    seeds.push_back(random_bits(of_epoch, static_cast<std::uint64_t>(index)));
  return seeds;
}

std::string listed(std::span<const std::int64_t> indices) {
  constexpr std::size_t kShown = 8;
  std::string text = "samples";
  for (const std::int64_t index : indices.first(std::min(indices.size(), kShown)))
    text += " " + std::to_string(index);
  return indices.size() > kShown ? text + " ..." : text;
}

void check(const LoaderOptions& options) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw TrainError(formatted("a loader's {} is {}: expected at least {}", name, value, least));
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

// Operations broadcast a tensor of one row to all samples, and report nothing.
void check_rows(const Batch& batch, std::int64_t samples) {
  const auto check = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.dim() > 0 && tensor.size(0) == samples)) return;
    throw TrainError(
        formatted("the batch's tensor '{}' has {} for {}: its first dimension is the samples'",
                  name, tensor.dim() == 0 ? "no dimension" : counted(tensor.size(0), "row"),
                  counted(samples, "sample")));
  };
  check("inputs", batch.inputs);
  check("targets", batch.targets);
  for (const auto& [name, tensor] : batch.named) check(name, tensor);
}

// The samples that can be collated alone; the others are added to `skipped`.
std::vector<std::int64_t> readable_of(const Dataset& dataset, std::span<const std::int64_t> indices,
                                      SkippedSamples& skipped) {
  std::vector<std::int64_t> readable;
  for (const std::int64_t& index : indices) {
    try {
      dataset.collate({&index, 1});
      readable.push_back(index);
    } catch (...) {
      skipped.add(index, reason());
    }
  }
  return readable;
}

// `indices` with the next of `readable` in place of each that is not among them. REQUIRES:
// `readable` has one, and the order of `indices`.
std::vector<std::int64_t> with_replacements(std::span<const std::int64_t> indices,
                                            std::span<const std::int64_t> readable) {
  std::vector<std::int64_t> replaced;
  std::size_t next = 0;
  for (const std::int64_t index : indices) {
    replaced.push_back(readable[next % readable.size()]);
    if (replaced.back() == index) ++next;
  }
  return replaced;
}

}  // namespace

std::int64_t batches_left(const SamplerOptions& sampler, const LoaderOptions& options,
                          SamplerPosition start) {
  std::int64_t total = 0;
  if (start.epoch < options.epochs) {
    total = batches_in(samples_per_rank(sampler, start.consumed), options) +
            (options.epochs - start.epoch - 1) * batches_in(samples_per_rank(sampler), options);
  }
  return options.max_batches < 0 ? total : std::min(total, options.max_batches);
}

std::int64_t steps_left(const SamplerOptions& sampler, LoaderOptions options, SamplerPosition start,
                        std::int64_t batches_a_step) {
  const std::int64_t epochs = options.epochs;
  options.max_batches = -1;
  const auto steps_until = [&](std::int64_t end, SamplerPosition from) {
    options.epochs = end;
    return (batches_left(sampler, options, from) + batches_a_step - 1) / batches_a_step;
  };
  if (start.epoch >= epochs) return 0;
  return steps_until(start.epoch + 1, start) + (epochs - start.epoch - 1) * steps_until(1, {});
}

struct Loader::State {
  State(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options,
        SamplerPosition start);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::optional<Batch> next();
  std::vector<Batch> next_step(std::int64_t batches);
  bool is_ready(std::int64_t count, std::chrono::milliseconds time);
  bool fails(std::int64_t count);

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
  Batch collate_samples(std::vector<std::int64_t>& indices) const;
  Made wait_for(std::int64_t number, Clock::time_point deadline);
  void start_workers();
  void stop_workers();
  void work();

  const Dataset& dataset_;
  const SamplerOptions sampler_;
  const LoaderOptions options_;
  const SamplerPosition start_;
  std::int64_t total_ = 0;

  // Apart from mutex_, because a list of 10^8 samples takes seconds to make.
  std::mutex order_mutex_;
  // Of two epochs, because at the end of one some workers are in the next already.
  std::array<std::pair<std::int64_t, std::shared_ptr<const EpochOrder>>, 2> orders_;

  std::mutex mutex_;
  std::condition_variable made_, room_;
  std::map<std::int64_t, Made> ready_;  // by number
  std::int64_t taken_ = 0;              // batches that workers have begun
  std::int64_t delivered_ = 0;
  bool stop_ = false;

  // Since the last batch was returned: when the caller first waited for the next one, and how long
  // in is_ready().
  std::optional<Clock::time_point> asked_;
  Clock::duration waited_{};
  SamplerPosition position_;
  std::optional<DeviceCopy> own_copy_;  // without workers
  std::vector<std::thread> workers_;
};

Loader::State::State(const Dataset& dataset, const SamplerOptions& sampler,
                     const LoaderOptions& options, SamplerPosition start)
    : dataset_(dataset), sampler_(sampler), options_(options), start_(start), position_(start) {
  check(options_);
  if (batches_in(samples_per_rank(sampler_), options_) == 0) {
    throw TrainError(formatted(
        "the data set has {} samples, too few for {} ranks{}", sampler_.size, sampler_.world_size,
        options_.drop_last ? formatted(" with batches of {}", options_.batch_size) : ""));
  }
  total_ = batches_left(sampler_, options_, start);
  if (options_.workers == 0) own_copy_.emplace(options_.device);
  start_workers();
}

Loader::State::~State() { stop_workers(); }

void Loader::State::start_workers() {
  try {
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop_workers();
    throw TrainError(formatted("cannot start data loading thread {} of {}: {}", workers_.size() + 1,
                               options_.workers, error.code().message()));
  }
}

void Loader::State::stop_workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::optional<Batch> Loader::State::next() {
  if (delivered_ == total_) return std::nullopt;
  const auto now = Clock::now();
  const auto asked = asked_.value_or(now);
  const auto waited = std::exchange(waited_, {});
  asked_.reset();
  Made made =
      own_copy_ ? make(delivered_++, *own_copy_) : wait_for(delivered_, asked + options_.timeout);
  if (made.error) std::rethrow_exception(made.error);
  Batch batch = DeviceCopy::finish(std::move(made.batch));
  position_ = batch.next;
  batch.waited_s = std::chrono::duration<double>(waited + (Clock::now() - now)).count();
  return batch;
}

std::vector<Batch> Loader::State::next_step(std::int64_t batches) {
  std::vector<Batch> step;
  while (std::ssize(step) < batches) {
    auto batch = next();
    if (!batch) break;
    step.push_back(std::move(*batch));
    if (step.back().next.epoch != step.back().epoch) break;
  }
  return step;
}

bool Loader::State::is_ready(std::int64_t count, std::chrono::milliseconds time) {
  if (own_copy_) return true;
  const auto now = Clock::now();
  if (time.count() > 0 && !asked_) asked_ = now;
  const std::int64_t end =
      std::min(total_, delivered_ + std::min<std::int64_t>(count, options_.batches_ahead));
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

bool Loader::State::fails(std::int64_t count) {
  const std::int64_t of_epoch =
      batches_in(samples_per_rank(sampler_, position_.consumed), options_);
  const std::lock_guard lock(mutex_);
  return std::any_of(ready_.begin(), ready_.lower_bound(delivered_ + std::min(count, of_epoch)),
                     [](const auto& made) { return made.second.error != nullptr; });
}

Loader::State::Made Loader::State::wait_for(std::int64_t number, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!made_.wait_until(lock, deadline, [&] { return ready_.contains(number); })) {
    throw TrainError(formatted(
        "batch {} since the start was not made within {} ms; check the data set's storage", number,
        options_.timeout.count()));
  }
  Made made = std::move(ready_.extract(number).mapped());
  ++delivered_;
  lock.unlock();
  room_.notify_one();
  return made;
}

Loader::State::BatchPlan Loader::State::plan(std::int64_t number) {
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
  const std::int64_t to =
      std::min(from + options_.batch_size, samples_per_rank(sampler_, begin.consumed));

  BatchPlan plan{.epoch = begin.epoch};
  plan.indices = rank_shard(sampler_, *order(begin.epoch), begin.consumed, from, to);
  // The end of an epoch is the start of the next one, which is the same position at any world size.
  const bool last = number + 1 == batches(begin.consumed);
  plan.next = last ? SamplerPosition{begin.epoch + 1, 0}
                   : SamplerPosition{begin.epoch, begin.consumed + to * sampler_.world_size};
  return plan;
}

std::shared_ptr<const EpochOrder> Loader::State::order(std::int64_t epoch) {
  const std::lock_guard lock(order_mutex_);
  auto& [cached, order] = orders_[epoch % 2];
  if (!order || cached != epoch) {
    order.reset();  // first, because the lists are large
    order = std::make_shared<const EpochOrder>(sampler_, epoch);
    cached = epoch;
  }
  return order;
}

Loader::State::Made Loader::State::make(std::int64_t number, const DeviceCopy& copy) {
  try {
    return {copy.begin(collate(plan(number))), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

Batch Loader::State::collate(const BatchPlan& plan) const {
  const PinnedBatches pinned(!options_.device.is_cpu());
  std::vector<std::int64_t> indices = plan.indices;
  Batch batch = collate_samples(indices);
  batch.epoch = plan.epoch;
  batch.next = plan.next;
  if (options_.transform) {
    try {
      options_.transform(batch, seeds_of(sampler_.seed, plan.epoch, indices));
    } catch (const c10::AcceleratorError&) {
      throw;  // of the device, as any call may throw it after an error of a kernel
    } catch (...) {
      std::throw_with_nested(
          TrainError(formatted("transform of {}: {}", listed(indices), reason())));
    }
  }
  check_rows(batch, std::ssize(indices));
  batch.indices = std::move(indices);
  return batch;
}

// Changes `indices` to those of the samples in the batch.
Batch Loader::State::collate_samples(std::vector<std::int64_t>& indices) const {
  try {
    return dataset_.collate(indices);
  } catch (const c10::AcceleratorError&) {
    throw;  // not of a sample
  } catch (...) {
    if (!options_.skipped) find_bad_sample(dataset_, indices);
    const auto readable =
        options_.skipped ? readable_of(dataset_, indices, *options_.skipped) : indices;
    if (readable.empty())
      std::throw_with_nested(TrainError(
          formatted("{} are a whole batch that cannot be read: {}", listed(indices), reason())));
    if (readable == indices)
      std::throw_with_nested(
          TrainError(formatted("{} cannot be collated: {}", listed(indices), reason())));
    indices = with_replacements(indices, readable);
  }
  return dataset_.collate(indices);
}

void Loader::State::work() {
  std::optional<DeviceCopy> copy;
  std::unique_lock lock(mutex_);
  while (true) {
    room_.wait(lock, [&] {
      return stop_ || taken_ == total_ || taken_ - delivered_ < options_.batches_ahead;
    });
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

Loader::Loader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options,
               SamplerPosition start)
    : state_(std::make_unique<State>(dataset, sampler, options, start)) {}

Loader::~Loader() = default;

std::optional<Batch> Loader::next() { return state_->next(); }

std::vector<Batch> Loader::next_step(std::int64_t batches) { return state_->next_step(batches); }

bool Loader::is_ready(std::int64_t count, std::chrono::milliseconds time) {
  return state_->is_ready(count, time);
}

std::int64_t Loader::steps_left(std::int64_t batches_a_step) const {
  return train::steps_left(state_->sampler_, state_->options_, state_->position_, batches_a_step);
}

bool Loader::fails(std::int64_t count) { return state_->fails(count); }

SamplerPosition Loader::position() const { return state_->position_; }

}  // namespace torchbridge::train
