// A trace of some steps by libtorch's profiler (Kineto), for chrome://tracing and https://ui.perfetto.dev.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <c10/core/Device.h>

namespace at {
struct RecordFunction;
}

namespace torchbridge::train {

struct StepProfileOptions {
  std::int64_t steps = 0;      // to trace; 0: none
  std::int64_t after = 10;     // steps of this process that come before, in which memory and buckets are laid out
  std::filesystem::path file;  // JSON
  c10::DeviceType device = c10::kCPU;  // a GPU is traced as well
};

// For the thread that trains.
class StepProfile {
 public:
  // Throws TrainError where the file cannot be written.
  explicit StepProfile(StepProfileOptions options);
  ~StepProfile();  // writes what was traced where an exception ends the training
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // At the beginning of each step: ends the one before. It appears in the trace as "step NUMBER".
  void begin_step(std::int64_t number);
  // When training ends: writes what was traced, or removes the file and says that nothing was. Throws TrainError where
  // that fails, or failed in the midst of training, which was said then.
  void finish();

 private:
  void start();
  void write();
  void write_or_say();

  StepProfileOptions options_;
  std::int64_t begun_ = 0;
  bool tracing_ = false, written_ = false, failed_ = false;
  std::unique_ptr<at::RecordFunction> step_;
};

}  // namespace torchbridge::train
