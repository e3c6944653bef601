// The model: one hidden layer. Change this file for your own architecture.
#include "model.h"

#include <torchbridge/task.h>

using namespace torchbridge::train;

namespace {

class Classifier : public Model {
 public:
  Classifier(std::int64_t width, const ImageShape& shape) {
    hidden_ = register_module("hidden", Linear(shape.rows * shape.columns, width));
    output_ = register_module("output", Linear(width, shape.classes));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    return output_->forward(hidden_->forward(inputs).relu());
  }

 private:
  Linear hidden_{nullptr}, output_{nullptr};
};

std::int64_t width_of(const std::string& spec) {
  const auto width = torchbridge::parse_integer(spec, 1, 65536);
  if (!width)
    throw TrainError("'" + spec + "': expected the hidden layer's width, a number from 1 to 65536");
  return *width;
}

}  // namespace

const char* const kModels = "WIDTH of the hidden layer";
const char* const kDefaultModel = "64";

void check_model(const std::string& spec) { width_of(spec); }

std::shared_ptr<Model> make_model(const std::string& spec, const ImageShape& shape) {
  return std::make_shared<Classifier>(width_of(spec), shape);
}
