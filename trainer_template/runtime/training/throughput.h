// The speed of training: time, samples, tokens and operations a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <torchbridge/ddp.h>
#include <torchbridge/part.h>
#include <torchbridge/task.h>
#include <torchbridge/training_step.h>

namespace torchbridge::train {

// Times are by this rank's clock; samples and tokens are those of all ranks. For one thread.
class Throughput final : public Part {
 public:
  // `peak_tflops`: of this rank's device; 0: unknown. task and ddp must outlive this.
  Throughput(const Task& task, const Model& model, DistributedDataParallel& ddp, int world_size,
             double peak_tflops);

  // Training time over all starts, pauses included, without steps that a kill has undone. It
  // differs from run to run.
  std::string name() const override { return "run"; }
  PartNumbers numbers() const override;
  void load(const SavedNumbers& saved) override { seconds_before_ = saved.at("seconds"); }
  // Sets the rates and fractions of the step's record, over the time since the previous step.
  void after_step(TrainingStep& step) override;

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

 private:
  const Task& task_;
  DistributedDataParallel& ddp_;
  const int world_size_;
  const double flops_, peak_tflops_;  // of a sample; 0: unknown
  double seconds_before_ = 0;         // of earlier starts
  std::int64_t steps_ = 0, samples_ = 0;
  std::optional<double> comm_fraction_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_step_;  // its end, moved by the length of later pauses
  std::chrono::steady_clock::duration pauses_{};
};

}  // namespace torchbridge::train
