// --task digits: classifies images in MNIST's files.
#include <algorithm>
#include <cstdio>
#include <ostream>

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/pooling.h>
#include <torchbridge/data.h>
#include <torchbridge/task.h>

#include "number_list.h"
#include "shipped_data.h"
#include "tasks.h"

using namespace torchbridge::train;

namespace {

// Layers are added one by one: as arguments of a single Sequential(...) their order of
// construction, and so their initial weights, would be unspecified.

// Linear layers with ReLU between them. Its parameters have the same names as in Python:
// layers.0.weight, layers.0.bias ...
class Mlp : public Model {
 public:
  Mlp(const std::vector<std::int64_t>& hidden, const IdxImages& images) {
    std::int64_t inputs = images.pixels_per_image();
    for (const std::int64_t width : hidden) {
      layers_->push_back(Linear(inputs, width));
      layers_->push_back(torch::nn::ReLU());
      inputs = width;
    }
    layers_->push_back(Linear(inputs, images.classes));
    register_module("layers", layers_);
  }
  at::Tensor forward(const at::Tensor& inputs) override { return layers_->forward(inputs); }

 private:
  torch::nn::Sequential layers_;
};

// Stages of convolution, batch normalisation and ReLU, each but the last followed by pooling to
// half the size.
class Cnn : public Model {
 public:
  Cnn(const std::vector<std::int64_t>& channels, const IdxImages& images)
      : rows_(images.rows), columns_(images.columns) {
    std::int64_t inputs = 1;
    for (const std::int64_t width : channels) {
      if (inputs > 1) features_->push_back(torch::nn::MaxPool2d(2));
      features_->push_back(
          torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, width, 3).padding(1)));
      features_->push_back(torch::nn::BatchNorm2d(width));
      features_->push_back(torch::nn::ReLU());
      inputs = width;
    }
    features_->push_back(torch::nn::AdaptiveAvgPool2d(1));
    register_module("features", features_);
    classifier_ = register_module("classifier", Linear(inputs, images.classes));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    return classifier_->forward(
        features_->forward(inputs.view({-1, 1, rows_, columns_})).flatten(1));
  }

 private:
  std::int64_t rows_, columns_;
  torch::nn::Sequential features_;
  Linear classifier_{nullptr};
};

struct ModelSpec {
  bool convolutional = false;
  std::vector<std::int64_t> widths;
};

std::string did_you_mean_kind(const std::string& kind) {
  static const std::vector<std::string> kKinds = {"mlp", "cnn"};
  return std::ranges::find(kKinds, kind) == kKinds.end() ? torchbridge::did_you_mean(kind, kKinds)
                                                         : "";
}

ModelSpec parse_model(const std::string& model) {
  constexpr std::size_t kMostStages = 16;
  const auto colon = model.find(':');
  const std::string kind = model.substr(0, colon);
  const auto widths =
      colon == std::string::npos ? std::nullopt : number_list(model.substr(colon + 1), 65536);
  if (!widths || (kind != "mlp" && kind != "cnn") ||
      (kind == "cnn" && widths->size() > kMostStages)) {
    throw TrainError(
        "'" + model +
        "': expected mlp:WIDTH,WIDTH... or cnn:CHANNELS,CHANNELS... with numbers from 1 to 65536" +
        did_you_mean_kind(kind));
  }
  return {kind == "cnn", *widths};
}

class DigitClassification : public Task {
 public:
  explicit DigitClassification(const TaskSettings& settings)
      : folder_(settings.data),
        spec_(parse_model(settings.model)),
        train_(folder_, "train"),
        test_(folder_, "t10k") {
    const IdxImages &train = train_.images(), &test = test_.images();
    const auto differ = [&](const std::string& what, std::int64_t here, std::int64_t there) {
      throw TrainError("data folder '" + folder_.string() + "': training images have " +
                       std::to_string(here) + " " + what + ", test images " +
                       std::to_string(there) + "; give another --data");
    };
    if (test.pixels_per_image() != train.pixels_per_image())
      differ("pixels each", train.pixels_per_image(), test.pixels_per_image());
    if (test.classes > train.classes) differ("classes", train.classes, test.classes);
    const std::int64_t smallest =
        spec_.convolutional ? std::int64_t{1} << (spec_.widths.size() - 1) : 1;
    if (train.rows < smallest || train.columns < smallest) {
      throw TrainError("--model cnn of " + std::to_string(spec_.widths.size()) +
                       " stages needs images of at least " + std::to_string(smallest) +
                       " pixels in width and height; those of '" + folder_.string() + "' are " +
                       std::to_string(train.columns) + "x" + std::to_string(train.rows) +
                       ": give fewer stages");
    }
  }

  const Dataset& train_set() const override { return train_; }
  const Dataset& eval_set() const override { return test_; }
  std::shared_ptr<Model> make_model() const override {
    if (spec_.convolutional) return std::make_shared<Cnn>(spec_.widths, train_.images());
    return std::make_shared<Mlp>(spec_.widths, train_.images());
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return at::cross_entropy_loss(outputs, targets);
  }
  std::vector<Metric> metrics() const override { return {accuracy()}; }

  // Converts the image to gray and to the size of the data set's images. Like them it should be
  // light on a dark background.
  void predict(Model& model, const std::filesystem::path& path, std::ostream& out) const override {
    const auto image = decode_image(MappedFile(path).bytes());
    if (!image) throw TrainError("--predict '" + path.string() + "': " + image.error().message);
    const at::Tensor pixels =
        at::from_blob(const_cast<std::uint8_t*>(image->pixels.data()),
                      {1, image->size.height, image->size.width, 3}, at::kByte)
            .to(at::kLong)
            .matmul(at::tensor({19595, 38470, 7471}, at::kLong))  // as Pillow's mode L: by 65536
            .add(0x8000)
            .floor_divide(0x10000)
            .to(at::kFloat)
            .div(255)
            .unsqueeze(1);
    const at::Tensor fitting = at::_upsample_bilinear2d_aa(
        pixels, {train_.images().rows, train_.images().columns}, /*align_corners=*/false);
    const at::Tensor chances =
        model.forward(fitting.flatten(1).to(model.parameters().front().device()))
            .softmax(-1)[0]
            .to(at::kCPU);
    const auto best = chances.argmax().item<std::int64_t>();
    char line[64];
    std::snprintf(line, sizeof line, ": %lld (%.1f %%)\n", static_cast<long long>(best),
                  100 * chances[best].item<double>());
    out << path.string() << line;
  }

 private:
  std::filesystem::path folder_;
  ModelSpec spec_;
  IdxDataset train_, test_;
};

}  // namespace

TaskRegistration digits_task() {
  return {.name = "digits",
          .summary = "images in MNIST's files",
          .models =
              "mlp:WIDTH,WIDTH... with one hidden layer a width, or cnn:CHANNELS,... with one "
              "convolution each",
          .defaults = {{"--data", shipped_data("digits")}, {"--model", "mlp:128,64"}},
          .check_model = [](const std::string& model) { parse_model(model); },
          .open =
              [](const TaskSettings& settings) {
                return std::make_unique<DigitClassification>(settings);
              },
          .predicts = true};
}
