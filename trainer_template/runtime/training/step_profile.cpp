#include "trainer_template/runtime/training/step_profile.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include <ATen/record_function.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "bridge/base/message_text.h"
#include "bridge/base/random_number.h"
#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/output/output_file.h"

namespace torchbridge::train {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

namespace {

constexpr const char* kOption = "--profile-file";

// The profiler writes its file's name into the trace as it is, and changes a backslash: the file is
// in the folder of `file`, under a name for it alone that has no such characters.
class TemporaryTrace {
 public:
  explicit TemporaryTrace(const std::filesystem::path& file)
      : folder_(open(file.has_parent_path() ? file.parent_path().c_str() : ".",
                     O_PATH | O_DIRECTORY | O_CLOEXEC)),
        path_(formatted("/proc/self/fd/{}/trace.{}-{}", folder_.descriptor(), getpid(),
                        random_number())) {
    if (!folder_.open()) throw cannot_open(file, std::strerror(errno), kOption);
  }
  ~TemporaryTrace() {
    std::error_code ignored;
    for (const char* end : {"", ".tmp"}) std::filesystem::remove(path_ + end, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  const Socket folder_;
  const std::string path_;
};

// A trace is recognized by the beginning that Kineto writes.
bool is_free_or_trace(const std::filesystem::path& file) {
  constexpr std::size_t kBeginning = 256;
  std::string text(kBeginning, '\0');
  std::ifstream in(file, std::ios::binary);
  text.resize(static_cast<std::size_t>(in.read(text.data(), kBeginning).gcount()));
  return text.empty() || text.find("\"schemaVersion\"") != std::string::npos;
}

}  // namespace

StepProfile::StepProfile(StepProfileOptions options) : options_(std::move(options)) {
  if (options_.steps == 0) return;
  // The trace is renamed to the file's name, which would replace a device such as /dev/null by a
  // file.
  std::error_code ignored;
  if (std::filesystem::exists(options_.file, ignored) &&
      !std::filesystem::is_regular_file(options_.file, ignored)) {
    throw cannot_open(options_.file, "it is not a regular file", kOption);
  }
  if (!is_free_or_trace(options_.file))
    throw cannot_open(options_.file, "it is not a trace and would be overwritten", kOption);
  errno = 0;
  if (!std::ofstream(options_.file, std::ios::app)) {
    throw cannot_open(options_.file, std::strerror(errno), kOption);
  }
}

StepProfile::~StepProfile() {
  try {
    write();
  } catch (const std::exception&) {
    // The run has ended, or ends by another error.
  }
}

void StepProfile::before_step(std::int64_t number) {
  if (options_.steps == 0) return;
  step_.reset();
  ++begun_;
  if (begun_ == options_.after + 1) start();
  if (begun_ == options_.after + options_.steps + 1) write_or_report();
  if (!tracing_) return;
  step_ = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  step_->before("step " + std::to_string(number));
}

void StepProfile::start() {
  // Kineto looks for GPUs even if none is traced, and logs an error if the driver shows none; that
  // of newer versions also logs the begin and the end of each trace. Errors have level 4 and these
  // 5.
  constexpr const char* kNothing = "6";
  if (options_.device == c10::kCPU) setenv("KINETO_LOG_LEVEL", kNothing, /*overwrite=*/0);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (options_.device == c10::kCUDA) activities.insert(ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  tracing_ = true;
}

// A lost trace does not end training.
void StepProfile::write_or_report() try { write(); } catch (const TrainError& error) {
  print_message(error.what());
  failed_ = true;
}

void StepProfile::finish() {
  write();
  if (failed_) throw TrainError("the trace of --profile could not be written");
  if (options_.steps == 0 || written_) return;
  print_message(
      formatted("--profile: no step was traced: tracing starts at step {}, and this run took {}",
                options_.after + 1, counted(begun_, "step")));
}

void StepProfile::write() {
  step_.reset();
  std::error_code ignored;
  if (!tracing_) {
    const bool is_empty =
        options_.steps > 0 && !written_ && std::filesystem::file_size(options_.file, ignored) == 0;
    if (is_empty) std::filesystem::remove(options_.file, ignored);  // the constructor made it
    return;
  }
  tracing_ = false;
  written_ = true;
  // Even if writing fails: an enabled profiler grows.
  const auto trace = profiler::disableProfiler();
  // Under a temporary name, because another start may write the same file now. The profiler does
  // not report a failed write: the file is parsed to find out.
  const TemporaryTrace saved(options_.file);
  trace->save(saved.path());
  std::ifstream written(saved.path());
  if (!nlohmann::json::accept(written)) {
    if (std::filesystem::file_size(options_.file, ignored) == 0)
      std::filesystem::remove(options_.file, ignored);
    throw cannot_write(options_.file);
  }
  const bool has_earlier = std::ifstream(options_.file).peek() != std::ifstream::traits_type::eof();
  if (has_earlier) back_up(options_.file, "is the trace of an earlier start", kOption);
  std::filesystem::rename(saved.path(), options_.file);
}

}  // namespace torchbridge::train
