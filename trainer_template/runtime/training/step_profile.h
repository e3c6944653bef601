// Traces some steps with libtorch's profiler (Kineto), for chrome://tracing and
// https://ui.perfetto.dev.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <c10/core/Device.h>
#include <torchbridge/part.h>

namespace at {
struct RecordFunction;
}

namespace torchbridge::train {

struct StepProfileOptions {
  std::int64_t steps = 0;  // to trace; 0: none
  // Untraced first steps of this process, which allocate memory and lay out buckets.
  std::int64_t after = 10;
  std::filesystem::path file;          // JSON
  c10::DeviceType device = c10::kCPU;  // a GPU is traced as well
};

// For the thread that trains.
class StepProfile final : public Part {
 public:
  // Throws TrainError if the file cannot be written.
  explicit StepProfile(StepProfileOptions options);
  ~StepProfile() override;  // writes the trace if an exception ends the training
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // Ends the previous step. This one is "step NUMBER" in the trace.
  void before_step(std::int64_t number) override;
  // Call it when training ends. Writes the trace, or removes the file and prints that no step was
  // traced. Throws TrainError if that fails, or if it failed during training, which printed a line
  // then.
  void finish();

 private:
  void start();
  void write();
  void write_or_report();

  StepProfileOptions options_;
  std::int64_t begun_ = 0;
  bool tracing_ = false, written_ = false, failed_ = false;
  std::unique_ptr<at::RecordFunction> step_;
};

}  // namespace torchbridge::train
