// Autocast and GradScaler: what float16 and bfloat16 need.
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <torchbridge/optimizer.h>

#include "tests/support/alone.h"
#include "tests/support/saved_of.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/optim/autocast.h"

namespace torchbridge::train {
namespace {

at::ScalarType type_of_product() {
  return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
}

TEST(Autocast, AppliesUntilItsEnd) {
  {
    const Autocast outer(at::kCPU, at::kBFloat16);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    {
      const Autocast inner(at::kCPU, at::kHalf);
      EXPECT_EQ(type_of_product(), at::kHalf);
      const Autocast off(at::kCPU, at::kFloat);
      EXPECT_EQ(type_of_product(), at::kFloat);
    }
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
  EXPECT_TRUE(contains(error_of([] { Autocast(at::kCPU, at::kInt); }), "autocast to Int"));
}

TEST(Autocast, CastsWeightsAgainInTheNextStep) {
  const at::Tensor weight = at::ones({1, 1}).set_requires_grad(true);
  const auto product = [&] {
    const Autocast scope(at::kCPU, at::kBFloat16);
    return at::mm(at::ones({1, 1}), weight).item<double>();
  };
  EXPECT_EQ(product(), 1);
  weight.detach().fill_(2);
  EXPECT_EQ(product(), 2);
}

class Scaling : public testing::Test {
 protected:
  // Whether the step was taken.
  bool step_with(double gradient) {
    parameter_.mutable_grad() = at::full({2}, gradient * scaler_.numbers().at("scale"));
    const at::Tensor found_inf = scaler_.unscale(*optimizer_).gt(0).to(at::kFloat);
    optimizer_->step(found_inf);
    scaler_.update(found_inf);
    return found_inf.item<float>() == 0;
  }
  double value() const { return parameter_.detach()[0].item<double>(); }

  at::Tensor parameter_ = at::ones({2}).set_requires_grad(true);
  std::unique_ptr<Optimizer> optimizer_ =
      make_sgd({{"p", parameter_}}, {.lr = 0.25, .momentum = 0.5});
  GradScaler scaler_{{.init_scale = 8, .growth_interval = 2}, at::kCPU};
};

TEST_F(Scaling, SkipsAStepThatOverflows) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(step_with(infinity));  // also as the very first one
  EXPECT_EQ(value(), 1);
  EXPECT_EQ(scaler_.numbers().at("scale"), 4);
  EXPECT_TRUE(step_with(2));
  EXPECT_EQ(value(), 0.5);
  EXPECT_FALSE(step_with(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(value(), 0.5);
}

TEST_F(Scaling, GrowsAfterGoodSteps) {
  EXPECT_TRUE(step_with(1) && step_with(1));
  EXPECT_EQ(scaler_.numbers(),
            (PartNumbers{{"scale", 16}, {"growth_tracker", 0}, {"init_scale", 8}}));
  EXPECT_TRUE(step_with(1));
  EXPECT_EQ(scaler_.numbers(),
            (PartNumbers{{"scale", 16}, {"growth_tracker", 1}, {"init_scale", 8}}));
}

TEST_F(Scaling, ResumesFromItsState) {
  step_with(1);
  step_with(1);
  GradScaler other({.init_scale = 8}, at::kCPU);
  other.load(saved_of(scaler_));
  EXPECT_EQ(other.numbers(), scaler_.numbers());
  EXPECT_EQ(other.numbers().at("scale"), 16);
}

// Another --loss-scale was asked for.
TEST_F(Scaling, AnotherInitialScaleBeginsAnew) {
  step_with(1);
  GradScaler other({.init_scale = 4}, at::kCPU);
  other.load(saved_of(scaler_));
  EXPECT_EQ(other.numbers().at("scale"), 4);
}

TEST_F(Scaling, OnlyChecksGradientsWhenDisabled) {
  GradScaler off({.enabled = false}, at::kCPU);
  parameter_.mutable_grad() = at::full({2}, 3.0);
  EXPECT_EQ(off.scale(at::ones({})).item<float>(), 1);
  EXPECT_EQ(off.unscale(*optimizer_).item<float>(), 0);
  EXPECT_EQ(parameter_.grad()[0].item<double>(), 3);
  parameter_.mutable_grad()[1] = std::numeric_limits<double>::infinity();
  EXPECT_GT(off.unscale(*optimizer_).item<float>(), 0);
  EXPECT_EQ(off.name(), "");
}

// As if there had been no step: also the first one of each optimizer, whose state is made in it.
TEST(FoundInf, DoesNotChangeParametersAndState) {
  using Make = std::unique_ptr<Optimizer> (*)(NamedTensors, const OptimizerOptions&);
  const OptimizerOptions options{.lr = 0.1, .momentum = 0.9};
  OptimizerOptions dampened = options, nesterov = options;
  dampened.dampening = 0.5;
  nesterov.nesterov = true;
  const std::pair<Make, OptimizerOptions> kinds[] = {{make_sgd, options},
                                                     {make_sgd, dampened},
                                                     {make_sgd, nesterov},
                                                     {make_adam, options},
                                                     {make_adamw, options}};
  for (const auto& [make, chosen] : kinds) {
    const at::Tensor straight = at::ones({3}).set_requires_grad(true),
                     skipping = at::ones({3}).set_requires_grad(true);
    const auto expected = make({{"p", straight}}, chosen), actual = make({{"p", skipping}}, chosen);
    const auto step = [](Optimizer& optimizer, const at::Tensor& parameter, double gradient,
                         double found_inf) {
      parameter.mutable_grad() = at::full({3}, gradient);
      optimizer.step(at::full({}, found_inf, at::kFloat));
    };
    step(*actual, skipping, std::numeric_limits<double>::infinity(), 1);
    for (const double gradient : {0.5, -2.0, 0.25}) {
      step(*expected, straight, gradient, 0);
      step(*actual, skipping, gradient, 0);
      step(*actual, skipping, std::numeric_limits<double>::quiet_NaN(), 1);
    }
    EXPECT_TRUE(at::equal(straight, skipping)) << straight << skipping;
    const NamedTensors state = actual->state(), expected_state = expected->state();
    ASSERT_EQ(state.size(), expected_state.size());
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_TRUE(at::equal(state[i].second, expected_state[i].second)) << state[i].first;
  }
}

TEST(GradScaler, RejectsInvalidFactors) {
  EXPECT_TRUE(
      contains(error_of([] { GradScaler({.growth_factor = 1}, at::kCPU); }), "growth_factor"));
  EXPECT_TRUE(
      contains(error_of([] { GradScaler({.backoff_factor = 1}, at::kCPU); }), "backoff_factor"));
}

}  // namespace
}  // namespace torchbridge::train
