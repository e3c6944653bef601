#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torchbridge/optimizer.h>

#include "tests/support/alone.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

using Tensors = std::vector<at::Tensor>;

// Gradients of 3 and 4, whose norm is 5, and a parameter without one.
Tensors parameters() {
  Tensors all = {at::ones({1}).set_requires_grad(true), at::ones({1, 1}).set_requires_grad(true),
                 at::ones({2})};
  all[0].mutable_grad() = at::full({1}, 3.0);
  all[1].mutable_grad() = at::full({1, 1}, 4.0);
  return all;
}

double gradient(const Tensors& parameters, std::size_t index) {
  return parameters[index].grad().item<double>();
}

TEST(GradClip, ScalesGradientsAboveTheNorm) {
  const Tensors all = parameters();
  EXPECT_EQ(clip_grad_norm(all, {.max_norm = 1}).item<double>(), 5);
  EXPECT_NEAR(gradient(all, 0), 0.6, 1e-6);
  EXPECT_NEAR(gradient(all, 1), 0.8, 1e-6);
}

TEST(GradClip, LeavesGradientsBelowTheNormUnchanged) {
  const Tensors all = parameters();
  EXPECT_EQ(clip_grad_norm(all, {.max_norm = 10, .norm_type = 1}).item<double>(), 7);
  EXPECT_EQ(
      clip_grad_norm(all, {.max_norm = 10, .norm_type = std::numeric_limits<double>::infinity()})
          .item<double>(),
      4);
  EXPECT_EQ(gradient(all, 0), 3);
  EXPECT_EQ(clip_grad_norm({at::ones({2})}, {}).item<double>(), 0);
}

TEST(GradClip, OfOneRankEqualsThatOfAllGradients) {
  for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    const Tensors whole = parameters(), part = parameters();
    const ClipOptions options{.max_norm = 1, .norm_type = norm_type};
    EXPECT_EQ(clip_grad_norm(part, options, alone()).item<double>(),
              clip_grad_norm(whole, options).item<double>());
    EXPECT_EQ(gradient(part, 1), gradient(whole, 1)) << norm_type;
  }
}

TEST(GradClip, RejectsWhatCannotBeClipped) {
  const Tensors all = parameters();
  all[0].mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(contains(error_of([&] { clip_grad_norm(all, {.error_if_nonfinite = true}); }),
                       "norm of the gradients is nan"));
  EXPECT_TRUE(contains(error_of([&] { clip_grad_norm(all, {.norm_type = 0}); }),
                       "norm_type must be above 0"));
}

// All ranks reduce it in the same place, also one that has no gradient. The device meta stands for
// a GPU.
TEST(GradClip, NormOfNoGradientsIsOnTheDeviceOfTheParameters) {
  const at::Tensor elsewhere = at::ones({2}, at::kMeta);
  EXPECT_TRUE(clip_grad_norm({elsewhere}, {}).is_meta());
}

}  // namespace
}  // namespace torchbridge::train
