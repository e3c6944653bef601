// Autocast and GradScaler: what float16 and bfloat16 need.
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <torchbridge/train/optim/autocast.h>
#include <torchbridge/train/optim/grad_scaler.h>

#include <limits>

#include "alone.h"
#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

at::ScalarType type_of_product() { return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

TEST(Autocast, HoldsUntilItsEnd) {
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

TEST(Autocast, CastsWeightsAnewInTheNextStep) {
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
  bool step_with(double gradient) {
    parameter_.mutable_grad() = at::full({2}, gradient * scaler_.current_scale());
    const bool stepped = scaler_.step(*optimizer_);
    scaler_.update();
    return stepped;
  }
  double value() const { return parameter_.detach()[0].item<double>(); }

  at::Tensor parameter_ = at::ones({2}).set_requires_grad(true);
  std::unique_ptr<Optimizer> optimizer_ = make_sgd({{"p", parameter_}}, {.lr = 0.25, .momentum = 0.5});
  GradScaler scaler_{alone(), {.init_scale = 8, .growth_interval = 2}};
};

TEST_F(Scaling, LeavesAStepOutThatOverflows) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(step_with(infinity));  // also as the very first one
  EXPECT_EQ(value(), 1);
  EXPECT_EQ(scaler_.current_scale(), 4);
  EXPECT_TRUE(step_with(2));
  EXPECT_EQ(value(), 0.5);
  EXPECT_FALSE(step_with(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(value(), 0.5);
}

TEST_F(Scaling, GrowsAfterGoodSteps) {
  EXPECT_TRUE(step_with(1) && step_with(1));
  EXPECT_EQ(scaler_.current_scale(), 16);
  EXPECT_EQ(scaler_.growth_tracker(), 0);
  EXPECT_TRUE(step_with(1));
  EXPECT_EQ(scaler_.growth_tracker(), 1);
}

TEST_F(Scaling, GoesOnFromItsState) {
  step_with(1);
  GradScaler other(alone());
  other.load_state(scaler_.state());
  EXPECT_EQ(other.current_scale(), 8);
  EXPECT_EQ(other.growth_tracker(), 1);
  EXPECT_TRUE(contains(error_of([&] { other.load_state({{"scale", 1}}); }), "is not whole"));
}

TEST_F(Scaling, UnscalesOnceAStep) {
  parameter_.mutable_grad() = at::full({2}, 8.0);
  scaler_.unscale(*optimizer_);
  EXPECT_EQ(parameter_.grad()[0].item<double>(), 1);
  EXPECT_TRUE(contains(error_of([&] { scaler_.unscale(*optimizer_); }), "called twice"));
  EXPECT_TRUE(scaler_.step(*optimizer_));
  EXPECT_EQ(value(), 0.75);
  scaler_.update();
  EXPECT_TRUE(contains(error_of([&] { scaler_.update(); }), "before step()"));
}

TEST(GradScaler, RefusesFactorsThatCannotBe) {
  EXPECT_TRUE(contains(error_of([] { GradScaler(alone(), {.growth_factor = 1}); }), "growth_factor"));
  EXPECT_TRUE(contains(error_of([] { GradScaler(alone(), {.backoff_factor = 1}); }), "backoff_factor"));
}

}  // namespace
}  // namespace torchbridge::train
