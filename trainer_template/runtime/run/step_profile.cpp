#include <torchbridge/train/run/step_profile.h>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torchbridge/train/errors.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

namespace torchbridge::train {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

StepProfile::StepProfile(StepProfileOptions options) : options_(std::move(options)) {
  if (options_.steps == 0) return;
  // The profiler writes aside and renames: it would put a file in the place of a device such as /dev/null.
  std::error_code ignored;
  if (std::filesystem::exists(options_.file, ignored) && !std::filesystem::is_regular_file(options_.file, ignored)) {
    throw TrainError("'" + options_.file.string() + "' is not a regular file; give another --profile-file");
  }
  errno = 0;
  if (!std::ofstream(options_.file, std::ios::app)) {
    throw TrainError("cannot write '" + options_.file.string() + "': " + std::strerror(errno) + "; give another --profile-file");
  }
}

StepProfile::~StepProfile() {
  try {
    finish();
  } catch (const std::exception&) {
    // The run has ended, or ends by another error.
  }
}

void StepProfile::begin_step(std::int64_t number) {
  if (options_.steps == 0) return;
  step_.reset();
  ++begun_;
  if (begun_ == options_.after + 1) start();
  if (begun_ == options_.after + options_.steps + 1) finish();
  if (!tracing_) return;
  step_ = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  step_->before("step " + std::to_string(number));
}

void StepProfile::start() {
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (options_.device == c10::kCUDA) activities.insert(ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  tracing_ = true;
}

void StepProfile::finish() {
  step_.reset();
  if (!tracing_) return;
  tracing_ = false;
  std::filesystem::resize_file(options_.file, 0);  // the profiler does not tell that it could not write
  profiler::disableProfiler()->save(options_.file);
  if (std::filesystem::file_size(options_.file) == 0) throw TrainError("cannot write '" + options_.file.string() + "': is the disk full?");
}

}  // namespace torchbridge::train
