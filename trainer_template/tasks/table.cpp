// --task table: predicts a number from numbers.
#include <limits>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torchbridge/data.h>
#include <torchbridge/task.h>

#include "number_list.h"
#include "shipped_data.h"
#include "tasks.h"

using namespace torchbridge::train;

namespace {

// Mean and standard deviation of columns.
struct Scale {
  at::Tensor mean, deviation;
  // Around the first row: the rounded sum of a constant column, such as 1700000000, would give it a
  // mean beside its value and a deviation near 0. Constant is also a column whose numbers differ in
  // their last bits alone, as 0.3 and 0.1 + 0.2.
  static Scale of(const at::Tensor& values, double deviation_of_constants) {
    constexpr double kLastBits = 8 * std::numeric_limits<double>::epsilon();
    const at::Tensor first = values[0], shifted = values - first;
    const at::Tensor mean = first + shifted.mean(0), deviation = shifted.std(0, /*unbiased=*/false);
    return {mean, at::where(deviation > mean.abs() * kLastBits, deviation, deviation_of_constants)};
  }
};

// Scales the inputs to mean 0 and deviation 1 over the training rows, and returns the target in its
// own unit. Both are in double precision, the layers in float: the mean may be large, the deviation
// small. The scales are buffers: they are saved with the weights. Linear layers with ReLU between
// them; linear regression without hidden layers.
class Regression : public Model {
 public:
  Regression(const std::vector<std::int64_t>& hidden, const Scale& inputs, const Scale& target) {
    std::int64_t features = inputs.mean.size(0);
    for (const std::int64_t width : hidden) {
      layers_->push_back(Linear(features, width));
      layers_->push_back(torch::nn::ReLU());
      features = width;
    }
    layers_->push_back(Linear(features, 1));
    register_module("layers", layers_);
    input_mean_ = register_buffer("input_mean", inputs.mean);
    input_deviation_ = register_buffer("input_deviation", inputs.deviation);
    target_mean_ = register_buffer("target_mean", target.mean);
    target_deviation_ = register_buffer("target_deviation", target.deviation);
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor scaled = ((inputs - input_mean_) / input_deviation_).to(at::kFloat);
    return layers_->forward(scaled).to(at::kDouble).squeeze(-1) * target_deviation_ + target_mean_;
  }

 private:
  torch::nn::Sequential layers_;
  at::Tensor input_mean_, input_deviation_, target_mean_, target_deviation_;
};

std::vector<std::int64_t> parse_hidden_sizes(const std::string& model) {
  static const std::vector<std::string> kKinds = {"linear", "mlp"};
  if (model == "linear") return {};
  const auto widths =
      model.starts_with("mlp:") ? number_list(model.substr(4), 65536) : std::nullopt;
  if (!widths) {
    throw TrainError("'" + model +
                     "': expected linear, or mlp:WIDTH,WIDTH... with numbers from 1 to 65536" +
                     torchbridge::did_you_mean(model.substr(0, model.find(':')), kKinds));
  }
  return *widths;
}

Batch whole(const Table& table) {
  std::vector<std::int64_t> all(table.size());
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return table.collate(all);
}

class TableRegression : public Task {
 public:
  explicit TableRegression(const TaskSettings& settings)
      : hidden_(parse_hidden_sizes(settings.model)),
        train_(std::filesystem::path(settings.data) / "train.csv", {}),
        test_(std::filesystem::path(settings.data) / "test.csv", {}) {
    if (test_.features() != train_.features()) {
      throw TrainError("data folder '" + settings.data + "': train.csv has " +
                       std::to_string(train_.features() + 1) + " columns, test.csv " +
                       std::to_string(test_.features() + 1));
    }
    if (test_.column_names() != train_.column_names()) {
      throw TrainError(
          "data folder '" + settings.data +
          "': train.csv and test.csv have different columns, or another order of columns");
    }
    const Batch rows = whole(train_);
    // A constant input has no effect, also if it has another value in a later row.
    inputs_ = Scale::of(rows.inputs, std::numeric_limits<double>::infinity());
    target_ = Scale::of(rows.targets, 1);
  }

  const Dataset& train_set() const override { return train_; }
  const Dataset& eval_set() const override { return test_; }
  std::shared_ptr<Model> make_model() const override {
    return std::make_shared<Regression>(hidden_, inputs_, target_);
  }
  // Squared errors in units of the target's variance, so that --lr does not depend on the target's
  // unit.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const at::Tensor deviation = target_.deviation.to(outputs.device());
    return ((outputs - targets) / deviation).square().mean().to(at::kFloat);
  }
  std::vector<Metric> metrics() const override {
    return {mean_over_samples("mean_absolute_error",
                              [](const at::Tensor& outputs, const at::Tensor& targets) {
                                return (outputs - targets).abs().mean();
                              })};
  }

 private:
  std::vector<std::int64_t> hidden_;
  Table train_, test_;
  Scale inputs_, target_;
};

}  // namespace

TaskRegistration table_task() {
  return {
      .name = "table",
      .summary = "the last column of train.csv and test.csv from the others",
      .models = "linear, or mlp:WIDTH,WIDTH... with one hidden layer a width",
      .defaults = {{"--data", shipped_data("table")},
                   {"--model", "linear"},
                   {"--lr", "0.003"},
                   {"--epochs", "40"}},
      .check_model = [](const std::string& model) { parse_hidden_sizes(model); },
      .open =
          [](const TaskSettings& settings) { return std::make_unique<TableRegression>(settings); }};
}
