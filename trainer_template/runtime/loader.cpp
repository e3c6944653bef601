#include <torchbridge/train/loader.h>

#include <torchbridge/train/errors.h>
#include <torchbridge/train/permutation.h>

#include <algorithm>

namespace torchbridge::train {
namespace {

std::int64_t batches_in(std::int64_t samples, std::int64_t batch_size) {
  return (samples + batch_size - 1) / batch_size;
}

}  // namespace

std::int64_t batches_left(const SamplerOptions& sampler, const LoaderOptions& options, SamplerPosition start) {
  std::int64_t total = 0;
  if (start.epoch < options.epochs) {
    total = batches_in(samples_per_rank(sampler, start.consumed), options.batch_size) +
            (options.epochs - start.epoch - 1) * batches_in(samples_per_rank(sampler), options.batch_size);
  }
  return options.max_batches < 0 ? total : std::min(total, options.max_batches);
}

Loader::Loader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options,
               SamplerPosition start)
    : dataset_(dataset), sampler_(sampler), options_(options), position_(start) {
  if (samples_per_rank(sampler_) == 0) {
    throw TrainError("the data set has " + std::to_string(sampler_.size) + " samples, too few for " +
                     std::to_string(sampler_.world_size) + " ranks");
  }
  total_ = batches_left(sampler_, options_, start);
  for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::optional<Batch> Loader::next() {
  if (delivered_ == total_) return std::nullopt;
  Made made;
  if (workers_.empty()) {
    made = make(*draw());
    ++delivered_;
  } else {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [&] { return ready_.contains(delivered_); });
    made = std::move(ready_.extract(delivered_++).mapped());
    lock.unlock();
    room_.notify_one();
  }
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

std::optional<Loader::Ticket> Loader::draw() {
  if (drawn_ == total_) return std::nullopt;
  if (samples_per_rank(sampler_, position_.consumed) == 0) position_ = {position_.epoch + 1, 0};
  if (share_epoch_ != position_.epoch) {
    share_ = rank_share(sampler_, epoch_order(sampler_, position_.epoch), position_.consumed);
    share_epoch_ = position_.epoch;
    share_start_ = position_.consumed;
  }
  const std::int64_t begin = (position_.consumed - share_start_) / sampler_.world_size;
  const std::int64_t end = std::min<std::int64_t>(begin + options_.batch_size, std::ssize(share_));

  Ticket ticket{.number = drawn_++, .epoch = position_.epoch};
  ticket.indices.assign(share_.begin() + begin, share_.begin() + end);
  position_.consumed += (end - begin) * sampler_.world_size;
  // A finished epoch is written as the start of the next one, which holds at any world size.
  if (end == std::ssize(share_)) position_ = {position_.epoch + 1, 0};
  ticket.next = position_;
  return ticket;
}

Loader::Made Loader::make(const Ticket& ticket) const {
  Made made;
  try {
    made.batch = dataset_.collate(ticket.indices);
    made.batch.epoch = ticket.epoch;
    made.batch.next = ticket.next;
  } catch (...) {
    made.error = std::current_exception();
  }
  return made;
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    room_.wait(lock, [&] { return stop_ || drawn_ - delivered_ < options_.batches_ahead; });
    if (stop_) return;
    const auto ticket = draw();
    if (!ticket) return;
    lock.unlock();
    Made made = make(*ticket);
    lock.lock();
    ready_.emplace(ticket->number, std::move(made));
    made_.notify_one();
  }
}

}  // namespace torchbridge::train
