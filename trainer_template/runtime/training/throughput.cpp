#include "trainer_template/runtime/training/throughput.h"

#include <algorithm>
#include <cmath>

#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/training/accumulation.h"

namespace torchbridge::train {

using Clock = std::chrono::steady_clock;

namespace {

// The fraction of forward and backward in the last step that DDP timed; nothing before the first.
std::optional<double> communication_fraction(DistributedDataParallel& ddp) {
  const auto numbers = ddp.logging_data().numbers;
  const auto ns = [&](const char* name) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? 0.0 : static_cast<double>(found->second);
  };
  const double communication = ns("backward_comm_time");
  const double all = ns("forward_compute_time") + ns("backward_compute_time") + communication -
                     ns("backward_compute_comm_overlap_time");
  if (communication <= 0 || all <= 0) return std::nullopt;
  return communication / all;
}

double seconds_of(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Throughput::Throughput(const Task& task, const Model& model, DistributedDataParallel& ddp,
                       int world_size, double peak_tflops)
    : task_(task),
      ddp_(ddp),
      world_size_(world_size),
      flops_(task.flops_per_sample(model)),
      peak_tflops_(peak_tflops),
      begin_(Clock::now()),
      last_step_(begin_) {}

void Throughput::after_step(TrainingStep& step) {
  const std::vector<Batch>& batches = step.batches();
  StepMetrics& record = step.record();
  const auto now = Clock::now();
  const double seconds = seconds_of(now - std::exchange(last_step_, now));
  const std::int64_t samples = samples_in(batches) * world_size_;
  samples_ += samples;
  double waited = 0;
  for (const Batch& batch : batches) waited += batch.waited_s;
  record.seconds = seconds;
  record.samples_per_s = static_cast<double>(samples) / seconds;
  record.data_time_fraction = std::min(waited / seconds, 1.0);
  if (const auto tokens = task_.tokens_per_sample(); tokens > 0)
    record.tokens_per_s = record.samples_per_s * static_cast<double>(tokens);
  if (flops_ > 0) {
    record.tflops = flops_ * record.samples_per_s / world_size_ / 1e12;
    if (peak_tflops_ > 0) record.mfu = *record.tflops / peak_tflops_;
  }
  // c10d times the first ten steps of a process and every hundredth; its numbers are available a
  // step later.
  ++steps_;
  constexpr std::int64_t kTimed = 100;
  if (world_size_ > 1 && (steps_ <= 11 || steps_ % kTimed == 1))
    comm_fraction_ = communication_fraction(ddp_);
  record.comm_fraction = comm_fraction_;
}

Throughput::Pause::~Pause() {
  const auto taken = Clock::now() - begin_;
  throughput_.pauses_ += taken;
  throughput_.last_step_ += taken;
}

std::string Throughput::rate() const {
  const double samples_per_s =
      static_cast<double>(samples_) / seconds_of(Clock::now() - begin_ - pauses_);
  const auto tokens = task_.tokens_per_sample();
  const double units = tokens > 0 ? static_cast<double>(tokens) : 1;
  return std::to_string(std::llround(samples_per_s * units)) +
         (tokens > 0 ? " tokens/s" : " samples/s");
}

PartNumbers Throughput::numbers() const {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
  return {{"seconds", seconds_before_ + static_cast<double>(now.count()) / 1000}};
}

}  // namespace torchbridge::train
