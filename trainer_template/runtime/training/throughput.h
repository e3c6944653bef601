// The speed of training: time, samples, tokens and operations a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/ddp/ddp.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

// Times are by this rank's clock; samples and tokens are those of all ranks. For one thread.
class Throughput {
 public:
  // `peak_tflops`: of this rank's device; 0: unknown. seconds() continues from `state`. task and ddp must outlive this.
  Throughput(const Task& task, const Model& model, DistributedDataParallel& ddp, int world_size, double peak_tflops,
             const TrainState& state);

  // Call it after each step. Sets the rates and fractions of its record, over the time since the previous step.
  void measure(StepMetrics& record, std::span<const Batch> batches);

  // While it lives, time does not count as training time: for an evaluation.
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

  // The mean rate of this start: "5120 samples/s", for a language model "81920 tokens/s".
  std::string rate() const;
  // Over all starts, pauses included: TrainState::seconds.
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
  std::chrono::steady_clock::time_point last_step_;  // its end, moved by the length of later pauses
  std::chrono::steady_clock::duration pauses_{};
};

}  // namespace torchbridge::train
