// How fast training is: time, samples, tokens and operations a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/ddp/ddp.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/training/task.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// Of this rank's clock; samples and tokens are those of all ranks. One thread.
class Throughput {
 public:
  // `peak_tflops`: of this rank's device; 0: unknown. Counts on from `state`; task and ddp must outlive it.
  Throughput(const Task& task, const Model& model, DistributedDataParallel& ddp, int world_size, double peak_tflops,
             const TrainState& state);

  // After each step: sets the rates and shares of its record. The time is that since the step before.
  void measure(StepRecord& record, std::span<const Batch> batches);

  // While one is alive the time does not count as training: for an evaluation.
  class Pause {
   public:
    explicit Pause(Throughput& throughput) : throughput_(throughput) {}
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Throughput& throughput_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  };

  // Of this start alone: "5120 samples/s", of a language model "81920 tokens/s".
  std::string rate() const;
  // Over all starts, also of pauses: TrainState::seconds.
  double seconds() const;

 private:
  const Task& task_;
  DistributedDataParallel& ddp_;
  const int world_size_;
  const double flops_, peak_tflops_;  // of a sample; 0: unknown
  const double seconds_before_;
  std::int64_t steps_ = 0, samples_ = 0;
  std::optional<double> comm_fraction_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_step_;  // its end, and of a pause after it
  std::chrono::steady_clock::duration pauses_{};
};

}  // namespace torchbridge::train
