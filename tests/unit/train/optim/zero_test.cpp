// ZeRO and its checkpoints as far as one rank shows them; multiproc.Zero has several.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/optim/state_pieces.h>
#include <torchbridge/train/optim/zero.h>

#include <array>
#include <thread>

#include "alone.h"
#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

NamedTensors two_parameters() {
  return {{"weight", at::ones({3, 5}).set_requires_grad(true)}, {"bias", at::zeros({7}).set_requires_grad(true)}};
}

std::vector<ParameterGroup> groups_of(const NamedTensors& parameters) {
  ParameterGroup first{.name = "first", .parameters = {parameters[0]}, .options = {.lr = 0.1}};
  ParameterGroup second{.name = "second", .parameters = {parameters[1]}, .options = {.lr = 0.2}};
  return {first, second};
}

std::unique_ptr<Optimizer> zero_of(const NamedTensors& parameters, GradientAverage average) {
  return make_zero(groups_of(parameters), alone(), [](auto groups) { return make_adamw(std::move(groups)); }, average);
}

TEST(Zero, StepsAsTheWholeOptimizer) {
  for (const auto average : {GradientAverage::kDdp, GradientAverage::kReduceScatter}) {
    const NamedTensors whole = two_parameters(), flat = two_parameters();
    const auto expected = make_adamw(groups_of(whole)), zero = zero_of(flat, average);
    for (int step = 0; step < 3; ++step) {
      expected->zero_grad();
      zero->zero_grad();
      for (std::size_t i = 0; i < whole.size(); ++i) {
        (whole[i].second * (step + 1.5)).sum().backward();
        (flat[i].second * (step + 1.5)).sum().backward();
      }
      expected->step();
      zero->average_gradients();
      zero->step();
    }
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(flat[i].second.equal(whole[i].second)) << flat[i].first;
  }
}

// Weight decay would move what has a gradient of zeros, and its momentum what had one before.
TEST(Zero, LeavesFrozenAndUnusedParametersAlone) {
  for (const auto average : {GradientAverage::kDdp, GradientAverage::kReduceScatter}) {
    NamedTensors parameters = two_parameters();
    parameters.emplace_back("frozen", at::ones({4}));
    const OptimizerOptions options{.lr = 0.1, .weight_decay = 0.5};
    std::vector<ParameterGroup> groups = {{.name = "all", .parameters = parameters, .options = options}};
    const auto zero = make_zero(groups, alone(), [](auto pieces) { return make_adamw(std::move(pieces)); }, average);
    const auto step_with = [&](bool bias) {
      zero->zero_grad();
      parameters[0].second.sum().backward();
      if (bias) (parameters[1].second * 2).sum().backward();
      zero->average_gradients();
      zero->step();
    };
    step_with(false);
    EXPECT_TRUE(parameters[1].second.equal(at::zeros({7}))) << "it has no gradient yet";
    step_with(true);
    const at::Tensor weight = parameters[0].second.detach().clone(), bias = parameters[1].second.detach().clone();
    EXPECT_FALSE(bias.equal(at::zeros({7})));
    step_with(false);
    EXPECT_TRUE(parameters[1].second.equal(bias)) << "it has no gradient in this step";
    EXPECT_FALSE(parameters[0].second.equal(weight));
    EXPECT_TRUE(parameters[2].second.equal(at::ones({4})));
  }
}

// Two ranks, as threads; the second parameter is used by one of them.
TEST(Zero, TakesAGradientThatOneRankHas) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::array<at::Tensor, 2> biases;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ProcessGroup group = init_process_group(EnvMap(), {.ranks = {rank, 2}}, store);
      const NamedTensors parameters = two_parameters();
      const auto make = [](auto pieces) { return make_sgd(std::move(pieces)); };
      const auto zero = make_zero(groups_of(parameters), group, make, GradientAverage::kReduceScatter);
      parameters[0].second.sum().backward();
      if (rank == 1) parameters[1].second.sum().backward();
      zero->average_gradients();
      zero->step();
      biases[rank] = parameters[1].second.detach();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const at::Tensor& bias : biases) EXPECT_TRUE(bias.equal(at::full({7}, 0.2f * -0.5f))) << bias;
}

TEST(Zero, PutsParametersIntoOneAlignedTensor) {
  const NamedTensors parameters = two_parameters();
  const auto zero = zero_of(parameters, GradientAverage::kDdp);
  const auto* first = parameters[0].second.const_data_ptr<float>();
  EXPECT_EQ(parameters[1].second.const_data_ptr<float>(), first + 16);
  EXPECT_EQ(parameters[0].second.sizes(), (std::vector<std::int64_t>{3, 5}));
  EXPECT_TRUE(parameters[0].second.equal(at::ones({3, 5})));
  EXPECT_TRUE(parameters[0].second.is_leaf());
}

TEST(Zero, LeavesGradientsToDdpOnGloo) {
  EXPECT_FALSE(zero_of(two_parameters(), GradientAverage::kAuto)->averages_gradients());
  EXPECT_TRUE(zero_of(two_parameters(), GradientAverage::kReduceScatter)->averages_gradients());
}

TEST(Zero, RefusesMixedTypes) {
  NamedTensors parameters = two_parameters();
  parameters[1].second = at::zeros({7}, at::kDouble);
  EXPECT_TRUE(contains(error_of([&] { zero_of(parameters, GradientAverage::kDdp); }),
                       "'bias' has another type or device than 'weight'"));
}

TEST(StatePieces, CutsWhatOthersWroteToTheWantedRange) {
  const at::Tensor whole = at::arange(10, at::kFloat), step = at::full({}, 4.0);
  for (const std::int64_t cut : {1, 5, 9}) {
    for (const auto& [begin, end] : {std::pair{0, 10}, {0, 3}, {4, 8}, {9, 10}}) {
      StatePieces pieces({{"p", {.begin = begin, .end = end, .total = 10}}});
      pieces.add({{"p.exp_avg", whole.narrow(0, 0, cut)}, {"p.step", step}});
      pieces.add({{"p.exp_avg", whole.narrow(0, cut, 10 - cut)}, {"p.step", step}});
      const NamedTensors taken = pieces.take();
      ASSERT_EQ(taken.size(), 2u);
      EXPECT_TRUE(taken[0].second.equal(whole.narrow(0, begin, end - begin))) << cut << " " << begin;
      EXPECT_TRUE(taken[1].second.equal(step));
    }
  }
}

TEST(StatePieces, SaysWhatIsMissing) {
  StatePieces pieces({{"p", {.begin = 0, .end = 10, .total = 10}}, {"elsewhere", {.begin = 4, .end = 4, .total = 10}}});
  pieces.add({{"p.exp_avg", at::ones({7})}, {"elsewhere.exp_avg", at::ones({7})}, {"other.exp_avg", at::ones({7})}});
  EXPECT_TRUE(contains(error_of([&] { pieces.take(); }), "'p.exp_avg' has 7 elements, expected 10"));
  StatePieces twice({{"p", {.begin = 0, .end = 10, .total = 10}}});
  twice.add({{"p.exp_avg", at::ones({10})}, {"p.step", at::ones({})}});
  EXPECT_EQ(error_of([&] { twice.add({{"p.step", at::ones({})}}); }), "");
  EXPECT_EQ(error_of([&] { twice.add({{"p.exp_avg", at::ones({10})}}); }), "optimizer state 'p.exp_avg' is in more than one file");
  StatePieces unknown({});
  unknown.add({{"other.exp_avg", at::ones({7})}});
  EXPECT_EQ(unknown.take().size(), 1u);  // Optimizer::load_state names it
}

}  // namespace
}  // namespace torchbridge::train
