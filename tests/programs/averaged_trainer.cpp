// A copy of the template with batch normalisation and dropout, which also evaluates the mean of the
// weights with the statistics of the model that is trained, as Python's AveragedModel has them.
#include <ATen/ops/dropout.h>
#include <torch/nn/modules/batchnorm.h>
#include <torchbridge/training.h>

#include "model.h"
#include "tasks.h"

using namespace torchbridge::train;

namespace {

class Normalised : public Model {
 public:
  explicit Normalised(const ImageShape& shape) {
    const std::int64_t pixels = shape.rows * shape.columns;
    norm_ = register_module("norm", torch::nn::BatchNorm1d(pixels));
    output_ = register_module("output", Linear(pixels, shape.classes));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    return output_->forward(at::dropout(norm_->forward(inputs), 0.1, is_training()));
  }

 private:
  torch::nn::BatchNorm1d norm_{nullptr};
  Linear output_{nullptr};
};

struct Mean : Part {
  std::string name() const override { return "mean"; }
  PartNumbers numbers() const override { return {{"steps", steps}}; }
  void load(const SavedNumbers& saved) override { steps = saved.at("steps"); }
  void after_step(TrainingStep&) override {
    const at::NoGradGuard no_grad;
    ++steps;
    for (std::size_t i = 0; i < trained.parameters.size(); ++i)
      means.parameters[i].second.lerp_(trained.parameters[i].second, 1 / steps);
    for (std::size_t i = 0; i < trained.buffers.size(); ++i)
      means.buffers[i].second.copy_(trained.buffers[i].second);
  }

  ModelTensors trained, means;
  double steps = 0;
};

ExitCode train(ProcessGroup& group, const Options& options) {
  const auto task = open_task(group, options);
  const auto model = make_model(group, *task, options);
  const auto optimizer = make_optimizer(group, tensors_of(*model), options);
  Session run(group, options, {*task, *model, *optimizer});
  const auto average = make_model(group, *task, options);  // which draws random numbers
  DistributedDataParallel ddp(tensors_of(*model), group, run.ddp_options());
  Loader loader = make_loader(group, task->train_set(), options, run.state().position);
  GradScaler scaler = make_scaler(group, options);
  Mean mean;
  mean.trained = tensors_of(*model);
  mean.means = tensors_of(*average);
  run.keep(mean);
  run.keep("mean", mean.means.parameters);
  run.keep("mean_statistics", mean.means.buffers);
  run.evaluate("mean", *average);
  run.begin(ddp, loader, scaler);
  while (auto step = run.next_step()) {
    optimizer->zero_grad();
    at::Tensor loss = at::zeros({});
    for (const Batch& batch : step->batches()) {
      const auto no_sync = ddp.no_sync_unless(step->is_last(batch));
      const at::Tensor part = step->share_of(batch, forward_loss(ddp, *model, *task, batch, *step));
      scaler.scale(part).backward();
      loss += part.detach();
    }
    const at::Tensor found_inf = scaler.unscale(*optimizer);
    const at::Tensor norm = clip_grad_norm(group, *optimizer, run.clipping(), found_inf);
    run.reduce(*step, loss, found_inf, norm);
    optimizer->step(step->found_inf());
    scaler.update(step->found_inf());
    run.finish(*step);
  }
  return run.end();
}

}  // namespace

const char* const kModels = "any text";
const char* const kDefaultModel = "norm";

void check_model(const std::string&) {}

std::shared_ptr<Model> make_model(const std::string&, const ImageShape& shape) {
  return std::make_shared<Normalised>(shape);
}

int main(int argc, char** argv) {
  return run_trainer(argc, argv, environ, registered_tasks(), train);
}
