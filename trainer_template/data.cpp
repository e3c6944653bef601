// The task's data: handwritten digits in MNIST's files. Change this file for your own data.
#include <ATen/ops/cross_entropy_loss.h>
#include <torchbridge/data.h>
#include <torchbridge/task.h>

#include "model.h"
#include "tasks.h"

using namespace torchbridge::train;

namespace {

class Digits : public Task {
 public:
  explicit Digits(const TaskSettings& settings)
      : model_(settings.model), train_(settings.data, "train"), test_(settings.data, "t10k") {
    const IdxImages &train = train_.images(), &test = test_.images();
    if (test.rows != train.rows || test.columns != train.columns || test.classes > train.classes) {
      throw TrainError(
          "data folder '" + settings.data +
          "': training and test images differ in size or classes; give another --data");
    }
  }

  const Dataset& train_set() const override { return train_; }
  const Dataset& eval_set() const override { return test_; }
  std::shared_ptr<Model> make_model() const override {
    const IdxImages& images = train_.images();
    return ::make_model(model_, {images.rows, images.columns, images.classes});
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return at::cross_entropy_loss(outputs, targets);
  }
  std::vector<Metric> metrics() const override { return {accuracy()}; }

 private:
  std::string model_;
  IdxDataset train_, test_;
};

}  // namespace

// One row for each task. `defaults` are for options that the user does not give.
std::span<const TaskRegistration> registered_tasks() {
  static const TaskRegistration kinds[] = {
      {.name = "digits",
       .summary = "images in MNIST's files",
       .models = kModels,
       .defaults = {{"--data", DATA_DIR},
                    {"--model", kDefaultModel},
                    {"--optimizer", "adam"},
                    {"--lr", "0.003"}},
       .check_model = check_model,
       .open = [](const TaskSettings& settings) { return std::make_unique<Digits>(settings); }}};
  return kinds;
}
