#include <torchbridge/train/trainer.h>

#include <ATen/ops/div.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <span>

namespace torchbridge::train {

using Clock = std::chrono::steady_clock;

Trainer::Trainer(ProcessGroup& group, DistributedDataParallel& ddp, Optimizer& optimizer, Task task,
                 LrSchedule schedule, Manifest progress)
    : group_(group), ddp_(ddp), optimizer_(optimizer), task_(std::move(task)), schedule_(schedule),
      progress_(std::move(progress)), samples_before_(progress_.samples_seen), begin_(Clock::now()), last_step_(begin_) {}

StepRecord Trainer::train_step(const Batch& batch) {
  StepRecord record{.step = progress_.step + 1, .epoch = batch.epoch};
  record.learning_rate = learning_rate(schedule_, record.step);
  optimizer_.zero_grad();
  const at::Tensor outputs = ddp_.forward([&] { return task_.forward(batch.inputs); });
  const at::Tensor loss = task_.loss(outputs, batch.targets);
  loss.backward();
  optimizer_.step(record.learning_rate);

  const at::Tensor mean = loss.detach().clone();
  group_.sum(mean);
  record.loss = mean.div(group_.world_size()).item<double>();

  const std::int64_t samples = batch.samples() * group_.world_size();
  const auto now = Clock::now();
  record.samples_per_s = static_cast<double>(samples) / std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  progress_.step = record.step;
  progress_.position = batch.next;
  progress_.samples_seen += samples;
  return record;
}

Evaluation Trainer::evaluate(const Dataset& dataset, std::int64_t batch_size) const {
  const at::NoGradGuard no_grad;
  const auto indices = each_once(dataset.size(), group_.rank(), group_.world_size());
  const at::Tensor sums = at::zeros({3}, at::kDouble);  // loss, right answers, samples
  auto* sum = sums.mutable_data_ptr<double>();
  for (std::size_t begin = 0; begin < indices.size(); begin += batch_size) {
    const auto count = std::min<std::size_t>(batch_size, indices.size() - begin);
    const Batch batch = dataset.collate(std::span(indices).subspan(begin, count));
    const at::Tensor outputs = task_.forward(batch.inputs);
    sum[0] += task_.loss(outputs, batch.targets).item<double>() * static_cast<double>(count);
    sum[1] += outputs.argmax(-1).eq(batch.targets.to(outputs.device())).sum().item<double>();
    sum[2] += static_cast<double>(count);
  }
  group_.sum(sums);
  return {.loss = sum[0] / sum[2], .accuracy = sum[1] / sum[2]};
}

Manifest Trainer::progress() {
  progress_.buckets = ddp_.buckets();
  return progress_;
}

double Trainer::samples_per_s() const {
  const std::chrono::duration<double> time = Clock::now() - begin_;
  return static_cast<double>(progress_.samples_seen - samples_before_) / time.count();
}

}  // namespace torchbridge::train
