// A backend that behaves as NCCL's where a rank does not take part in a collective: what waits for
// it returns after an abort alone, without an error and with wrong values, and only getError()
// shows that the collective has failed. A wait with a time of its own throws.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

// What a collective waits for, and what its timeout and an abort change.
struct HangingState {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_aborted = false;
  bool has_begun = false;  // a collective that nothing ends
  std::chrono::steady_clock::time_point deadline;
};

class HangingWork : public c10d::Work {
 public:
  explicit HangingWork(std::shared_ptr<HangingState> state) : state_(std::move(state)) {}
  bool isCompleted() override { return false; }
  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(state_->mutex);
    const auto is_aborted = [&] { return state_->is_aborted; };
    if (timeout == kNoTimeout) {
      state_->changed.wait(lock, is_aborted);
    } else if (!state_->changed.wait_for(lock, timeout, is_aborted)) {
      C10_THROW_ERROR(DistBackendError,
                      "Watchdog caught collective operation timeout: it ran before timing out.");
    }
    return true;
  }

 private:
  std::shared_ptr<HangingState> state_;
};

// The first all-reduce is that of `first`, in which the ranks meet, and so are the broadcasts of a
// group that is formed.
class HangingBackend : public c10d::Backend {
 public:
  // The collectives after that fail with `error` after `timeout`.
  HangingBackend(c10::intrusive_ptr<c10d::Backend> first, std::chrono::milliseconds timeout,
                 c10d::ErrorType error)
      : c10d::Backend(first->getRank(), first->getSize()),
        first_(std::move(first)),
        timeout_(timeout),
        error_(error) {}

  const std::string getBackendName() const override { return "hanging"; }
  c10d::ErrorType getError() override {
    const std::scoped_lock lock(state_->mutex);
    const bool has_failed =
        state_->has_begun && std::chrono::steady_clock::now() > state_->deadline;
    return has_failed ? error_ : c10d::ErrorType::SUCCESS;
  }
  void abort() override {
    const std::scoped_lock lock(state_->mutex);
    state_->is_aborted = true;
    state_->changed.notify_all();
  }
  bool is_aborted() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->is_aborted;
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    return c10::make_intrusive<HangingWork>(state_);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return first_->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    if (!std::exchange(have_met_, true)) return first_->allreduce(tensors, options);
    const std::scoped_lock lock(state_->mutex);
    if (state_->is_aborted)
      C10_THROW_ERROR(DistBackendError, "NCCL communicator was aborted on rank 0.");
    if (!std::exchange(state_->has_begun, true))
      state_->deadline = std::chrono::steady_clock::now() + timeout_;
    return c10::make_intrusive<HangingWork>(state_);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> first_;
  std::chrono::milliseconds timeout_;
  c10d::ErrorType error_;
  bool have_met_ = false;
  std::shared_ptr<HangingState> state_ = std::make_shared<HangingState>();
};
