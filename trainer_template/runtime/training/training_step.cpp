#include <algorithm>
#include <optional>
#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torchbridge/ddp.h>
#include <torchbridge/errors.h>
#include <torchbridge/task.h>
#include <torchbridge/training_step.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/own_name.h"
#include "trainer_template/runtime/optim/autocast.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/training/accumulation.h"
#include "trainer_template/runtime/training/step_sums.h"

namespace torchbridge::train {
namespace {

// Throws AcceleratorError where it is broken: cuBLAS and cuDNN report that as errors of their own.
void check_device(const Batch& batch) {
  const c10::Device device = (batch.inputs.defined() ? batch.inputs : batch.targets).device();
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.queryStream(guard.getStream(device));  // which does not wait: a kernel may never end
}

// Turns the model's error into a message about the batch. The group reports a broken connection,
// and the error of a device may be of an earlier batch, so these pass.
Outputs forward(Model& model, const Batch& batch, std::int64_t step) try {
  return model.forward_batch(batch);
} catch (const c10::DistError&) {
  throw;
} catch (const c10::AcceleratorError&) {
  throw;
} catch (const c10::Error& error) {
  check_device(batch);
  const std::string reason = one_line(error);
  const bool is_of_batch_norm = reason.find("more than 1 value per channel") != std::string::npos;
  throw TrainError(formatted(
      "step {}: the model rejects a batch of {}: {}{}", step, counted(batch.samples(), "sample"),
      reason, is_of_batch_norm ? "; if an epoch leaves one sample over, give --drop-last" : ""));
}

std::string sizes_of(const at::Tensor& tensor) {
  return tensor.defined() ? formatted("has the sizes [{}]",
                                      joined(tensor.sizes(), ", ",
                                             [](auto size) { return std::to_string(size); }))
                          : "is undefined";
}

std::string shown(const std::string& name) {
  return formatted("a step logs the number '{}': ", printable(name));
}

void check_name(const std::string& name) {
  if (!is_own_name(name))
    throw TrainError(shown(name) + "expected a name of small letters, digits and underscores");
  if (is_name_of_trainer(name))
    throw TrainError(shown(name) + "the trainer's metrics have it: choose another one");
}

// By the model or a loss, whose errors are those of the batch; those of the connections to other
// ranks, as of a SyncBatchNorm, and of a device are not: gloo's are runtime errors.
template <class Work>
auto computed(const TrainingStep& step, Work&& work) try {
  return work();
} catch (const c10::DistError&) {
  throw;
} catch (const c10::AcceleratorError&) {
  throw;
} catch (const c10::Error&) {
  step.rejected();
  throw;
} catch (const std::logic_error&) {
  step.rejected();
  throw;
} catch (const TrainError&) {
  step.rejected();
  throw;
}

// The gradient of a loss that is NaN is NaN, whatever its factor: it ends here.
void stop_gradients_of_nothing(Outputs& outputs, const at::Tensor& factor) {
  const at::Tensor counts = factor != 0;
  const auto stop = [counts](const at::Tensor& gradient) {
    return at::where(counts, gradient, at::zeros({}, gradient.options()));
  };
  visit_tensors(outputs, [&](at::Tensor& output) {
    if (!output.requires_grad()) return;
    if (output.is_leaf()) output = output.view_as(output);  // a parameter would keep the hook
    output.register_hook(stop);
  });
}

std::optional<std::ptrdiff_t> index_in_step(const TrainingStep& step, const Batch& batch) {
  const std::ptrdiff_t index = &batch - step.batches().data();
  if (index < 0 || index >= std::ssize(step.batches())) return std::nullopt;
  return index;
}

// Of which the mean over the step's batches is the mean of the step.
at::Tensor value_in_step(const TrainingStep& step, const Batch& batch, const at::Tensor& mean) {
  if (!index_in_step(step, batch)) return mean;  // of another loader
  const std::int64_t batches = std::ssize(step.batches());
  const at::Tensor share = step.share_of(batch, mean);
  return batches == 1 ? share : share * batches;
}

}  // namespace

struct TrainingStep::State {
  struct Logged {
    std::string name;
    at::Tensor sum;
    std::int64_t count = 0;
  };

  StepMetrics record;
  std::vector<Batch> batches;
  AccumulationMean mean;
  c10::ScalarType precision;
  std::function<void(const TrainingStep&)> on_rejected = {};
  at::Tensor factors = {};
  std::vector<Logged> logged = {};
  StepSums sums = {};
};

TrainingStep::TrainingStep(const StepMetrics& record, std::vector<Batch> batches,
                           AccumulationMean mean, c10::ScalarType precision)
    : state_(new State{record, std::move(batches), mean, precision}) {}

TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep::~TrainingStep() = default;

std::int64_t TrainingStep::number() const { return state_->record.step; }
const std::vector<Batch>& TrainingStep::batches() const { return state_->batches; }
c10::ScalarType TrainingStep::precision() const { return state_->precision; }
const at::Tensor& TrainingStep::found_inf() const { return state_->sums.found_inf; }
StepMetrics& TrainingStep::record() { return state_->record; }
void TrainingStep::on_rejected(std::function<void(const TrainingStep&)> call) {
  state_->on_rejected = std::move(call);
}
void TrainingStep::rejected() const {
  if (state_->on_rejected) state_->on_rejected(*this);
}
void TrainingStep::set_factors(at::Tensor factors) { state_->factors = std::move(factors); }
void TrainingStep::set_sums(StepSums sums) { state_->sums = std::move(sums); }
const StepSums& TrainingStep::sums() const { return state_->sums; }

at::Tensor TrainingStep::share_of(const Batch& batch, const at::Tensor& mean_loss) const {
  if (const at::Tensor factor = factor_of(batch); factor.defined())
    return weighted(factor.to(mean_loss.scalar_type()), mean_loss);
  const double divisor = loss_divisor(batch, batches(), state_->mean);
  return divisor == 1 ? mean_loss : mean_loss.div(divisor);
}

at::Tensor TrainingStep::factor_of(const Batch& batch) const {
  if (!state_->factors.defined()) return {};
  const auto index = index_in_step(*this, batch);
  if (!index) throw TrainError("the task weighs its batches, and this one is none of the step's");
  return state_->factors[*index];
}

void TrainingStep::log(const std::string& name, const at::Tensor& number) {
  if (state_->sums.numbers.defined())
    throw TrainError(shown(name) + "call log() before the session's reduce()");
  if (!number.defined() || number.numel() != 1)
    throw TrainError(
        formatted("{}expected a tensor of one number, this one {}", shown(name), sizes_of(number)));
  const auto logged = std::ranges::find(state_->logged, name, &State::Logged::name);
  if (logged != state_->logged.end()) {
    logged->sum = logged->sum + number.detach();
    ++logged->count;
    return;
  }
  check_name(name);
  state_->logged.push_back({name, number.detach(), 1});
}

std::vector<at::Tensor> TrainingStep::take_logged() {
  std::vector<at::Tensor> means;
  for (auto& [name, sum, count] : state_->logged) {
    means.push_back(count == 1 ? sum : sum.div(count));
    record().logged.emplace_back(name, 0);
  }
  state_->logged.clear();
  return means;
}

at::Tensor forward_loss(DistributedDataParallel& ddp, Model& model, const Task& task,
                        const Batch& batch, TrainingStep& step, const std::string& loss,
                        Outputs* returned) {
  std::optional<Autocast> autocast;
  if (step.precision() != c10::kFloat)
    autocast.emplace(model.parameters().front().device().type(), step.precision());
  Outputs outputs = ddp.forward(
      [&] { return computed(step, [&] { return forward(model, batch, step.number()); }); });
  if (returned) {
    *returned = outputs;
    visit_tensors(*returned, [](at::Tensor& tensor) { tensor = tensor.detach(); });
  }
  if (const at::Tensor factor = step.factor_of(batch); factor.defined())
    stop_gradients_of_nothing(outputs, factor);
  const std::vector<Loss> losses = task.losses();
  at::Tensor sum;
  for (const Loss& each : losses) {
    if (!loss.empty() && each.name != loss) continue;
    const at::Tensor mean = computed(step, [&] { return each.mean(outputs, batch); });
    if (!mean.defined() || mean.dim() != 0)
      throw TrainError(formatted("the task's loss '{}' {}: expected a tensor without dimensions",
                                 each.name, sizes_of(mean)));
    if (losses.size() > 1) step.log(each.name + "_loss", value_in_step(step, batch, mean.detach()));
    const at::Tensor part = part_of_sum(each, mean);
    sum = sum.defined() ? sum + part : part;
  }
  if (!sum.defined()) throw TrainError(formatted("the task has no loss '{}'", loss));
  return sum;
}

}  // namespace torchbridge::train
