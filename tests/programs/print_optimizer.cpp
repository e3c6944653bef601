// Prints the parameters after some steps of each case on standard input, as
// tests/reference/optimizer_reference.py does with Python's optimizers.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <torchbridge/optimizer.h>

#include "tests/support/alone.h"

using namespace torchbridge::train;

namespace {

constexpr int kSteps = 6, kWithoutGradient = 2, kOverflow = 3;

// OPTIMIZER KEY=VALUE ...
struct Case {
  std::string optimizer;
  std::map<std::string, double> values;
  double value(const std::string& key, double otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : found->second;
  }
};

Case parse(const std::string& line) {
  Case result;
  std::istringstream words(line);
  words >> result.optimizer;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    result.values[word.substr(0, equals)] = std::stod(word.substr(equals + 1));
  }
  return result;
}

std::vector<ParameterGroup> groups_of(const Case& c, const at::Tensor& matrix,
                                      const at::Tensor& vector) {
  OptimizerOptions options{.lr = c.value("lr", 0.01),
                           .momentum = c.value("momentum", 0),
                           .dampening = c.value("dampening", 0),
                           .nesterov = c.value("nesterov", 0) != 0,
                           .beta1 = c.value("beta1", 0.9),
                           .beta2 = c.value("beta2", 0.999),
                           .epsilon = c.value("eps", 1e-8),
                           .amsgrad = c.value("amsgrad", 0) != 0,
                           .maximize = c.value("maximize", 0) != 0};
  if (c.values.contains("weight_decay")) options.weight_decay = c.value("weight_decay", 0);
  OptimizerOptions second = options;
  second.lr = options.lr * 3;
  second.weight_decay = 0;
  return {{.name = "first", .parameters = {{"matrix", matrix}}, .options = options},
          {.name = "second", .parameters = {{"vector", vector}}, .options = second}};
}

std::unique_ptr<Optimizer> make(const Case& c, std::vector<ParameterGroup> groups) {
  if (c.optimizer == "sgd") return make_sgd(std::move(groups));
  return c.optimizer == "adam" ? make_adam(std::move(groups)) : make_adamw(std::move(groups));
}

void print_values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous();
  for (std::int64_t i = 0; i < flat.numel(); ++i)
    std::printf(" %.9g", flat.const_data_ptr<float>()[i]);
}

void run(const Case& c) {
  at::manual_seed(5);
  const at::Tensor matrix = at::randn({9, 7}).set_requires_grad(true),
                   vector = at::randn({5}).set_requires_grad(true);
  const auto optimizer = make(c, groups_of(c, matrix, vector));
  GradScaler scaler({.growth_interval = 2}, at::kCPU);
  const bool scales = c.value("scaler", 0) != 0;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    const double scale = scales ? scaler.numbers().at("scale") : 1;
    matrix.mutable_grad() = at::randn({9, 7}).mul(scale);
    const at::Tensor gradient = at::randn({5}).mul(scale);
    if (step != kWithoutGradient) vector.mutable_grad() = gradient;
    if (scales && step == kOverflow)
      vector.mutable_grad()[1] = std::numeric_limits<float>::infinity();
    const at::Tensor found_inf =
        scales ? scaler.unscale(*optimizer).gt(0).to(at::kFloat) : at::Tensor();
    if (c.values.contains("clip")) {
      print_values(clip_grad_norm({matrix, vector}, {.max_norm = c.value("clip", 0),
                                                     .norm_type = c.value("norm_type", 2)}));
    }
    optimizer->step(found_inf);
    if (scales) {
      std::printf(found_inf.item<float>() == 0 ? " stepped" : " skipped");
      scaler.update(found_inf);
      std::printf(" %.17g", scaler.numbers().at("scale"));
    }
  }
  print_values(matrix);
  print_values(vector);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::printf("%s:", line.c_str());
    run(parse(line));
    std::printf("\n");
  }
}
