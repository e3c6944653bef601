#include <algorithm>

#include <c10/util/Exception.h>
#include <torchbridge/optimizer.h>

namespace torchbridge::train {
namespace {

std::vector<ParameterGroup> one_group(NamedTensors parameters, const OptimizerOptions& options) {
  return {{.name = "all", .parameters = std::move(parameters), .options = options}};
}

}  // namespace

void Optimizer::step(const at::Tensor& found_inf) {
  for (const auto& wait : readers_) wait();
  readers_.clear();
  take_step(found_inf);
}

void Optimizer::step(double lr) {
  for (ParameterGroup* group : groups()) group->options.lr = lr;
  step();
}

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = {
      {"sgd", make_sgd, 0},
      {"adam", make_adam, 0, 0.999, false},
      {"adamw", make_adamw, 0.01, 0.999, false},
  };
  return kinds;
}

const OptimizerKind& optimizer_kind(const std::string& name) {
  const auto kind = std::ranges::find(optimizer_kinds(), name, &OptimizerKind::name);
  TORCH_CHECK(kind != optimizer_kinds().end(), "optimizer '", name,
              "' is not in optimizer_kinds()");
  return *kind;
}

std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters, const OptimizerOptions& options) {
  return make_sgd(one_group(std::move(parameters), options));
}

std::unique_ptr<Optimizer> make_adam(NamedTensors parameters, const OptimizerOptions& options) {
  return make_adam(one_group(std::move(parameters), options));
}

std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters, const OptimizerOptions& options) {
  return make_adamw(one_group(std::move(parameters), options));
}

}  // namespace torchbridge::train
