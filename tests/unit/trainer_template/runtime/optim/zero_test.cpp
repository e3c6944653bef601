// ZeRO and its checkpoints as far as one rank shows them; process.Zero has several.
#include <array>
#include <cstdlib>
#include <functional>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torchbridge/ddp.h>
#include <torchbridge/optimizer.h>

#include "bridge/base/env_map.h"
#include "tests/support/alone.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/optim/state_pieces.h"

namespace torchbridge::train {
namespace {

NamedTensors weight_and_bias() {
  return {{"weight", at::ones({3, 5}).set_requires_grad(true)},
          {"bias", at::zeros({7}).set_requires_grad(true)}};
}

std::vector<ParameterGroup> groups_of(const NamedTensors& parameters) {
  ParameterGroup first{.name = "first", .parameters = {parameters[0]}, .options = {.lr = 0.1}};
  ParameterGroup second{.name = "second", .parameters = {parameters[1]}, .options = {.lr = 0.2}};
  return {first, second};
}

std::unique_ptr<Optimizer> zero_of(const NamedTensors& parameters, GradientAverage average) {
  return make_zero(
      groups_of(parameters), alone(), [](auto groups) { return make_adamw(std::move(groups)); },
      average);
}

constexpr GradientAverage kAverages[] = {GradientAverage::kDdp, GradientAverage::kReduceScatter};

// A parameter may be left out of a step.
DistributedDataParallel ddp_of(const NamedTensors& parameters, Optimizer& optimizer,
                               ProcessGroup& group) {
  return {{.parameters = parameters, .buffers = {}},
          group,
          {.gradient_as_bucket_view = true,
           .find_unused_parameters = true,
           .comm_hook = optimizer.comm_hook()}};
}

TEST(Zero, StepsAsTheUnshardedOptimizer) {
  for (const auto average : kAverages) {
    const NamedTensors whole = weight_and_bias(), flat = weight_and_bias();
    const auto expected = make_adamw(groups_of(whole)), zero = zero_of(flat, average);
    DistributedDataParallel ddp = ddp_of(flat, *zero, alone());
    for (int step = 0; step < 3; ++step) {
      expected->zero_grad();
      zero->zero_grad();
      const auto loss = [step](const NamedTensors& of) {
        return (of[0].second * (step + 1.5)).sum() + (of[1].second * (step + 1.5)).sum();
      };
      loss(whole).backward();
      ddp.forward(loss, flat).backward();
      expected->step();
      zero->step();
    }
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(flat[i].second.equal(whole[i].second)) << flat[i].first;
  }
}

// Weight decay would move what has a gradient of zeros, and its momentum what had one before.
TEST(Zero, DoesNotChangeFrozenAndUnusedParameters) {
  for (const auto average : kAverages) {
    NamedTensors parameters = weight_and_bias();
    parameters.emplace_back("frozen", at::ones({4}));
    const OptimizerOptions options{.lr = 0.1, .weight_decay = 0.5};
    std::vector<ParameterGroup> groups = {
        {.name = "all", .parameters = parameters, .options = options}};
    const auto zero = make_zero(
        groups, alone(), [](auto pieces) { return make_adamw(std::move(pieces)); }, average);
    DistributedDataParallel ddp = ddp_of(parameters, *zero, alone());
    const auto step_with = [&](bool bias) {
      zero->zero_grad();
      ddp.forward([&] {
           const at::Tensor sum = parameters[0].second.sum();
           return bias ? sum + (parameters[1].second * 2).sum() : sum;
         })
          .backward();
      zero->step();
    };
    step_with(false);
    EXPECT_TRUE(parameters[1].second.equal(at::zeros({7}))) << "it has no gradient yet";
    step_with(true);
    const at::Tensor weight = parameters[0].second.detach().clone(),
                     bias = parameters[1].second.detach().clone();
    EXPECT_FALSE(bias.equal(at::zeros({7})));
    step_with(false);
    EXPECT_TRUE(parameters[1].second.equal(bias)) << "it has no gradient in this step";
    EXPECT_FALSE(parameters[0].second.equal(weight));
    EXPECT_TRUE(parameters[2].second.equal(at::ones({4})));
  }
}

// Ranks as threads. libtorch 2.11 has one flight recorder a process, whose map of groups the first
// collective of each group changes without a lock (FlightRecorder::record): not with a buffer of
// size 0, which it reads at its first use.
[[maybe_unused]] const bool no_flight_recorder = setenv("TORCH_FR_BUFFER_SIZE", "0", 0) == 0;

void on_ranks(int world_size, const std::function<void(ProcessGroup& group)>& run) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      ProcessGroup group = init_process_group(EnvMap(), {.ranks = {rank, world_size}}, store);
      run(group);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

std::unique_ptr<Optimizer> scattering_sgd(const NamedTensors& parameters, ProcessGroup& group) {
  return make_zero(
      groups_of(parameters), group, [](auto pieces) { return make_sgd(std::move(pieces)); },
      GradientAverage::kReduceScatter);
}

// The second parameter is used by one of two ranks.
TEST(Zero, TakesAGradientThatOneRankHas) {
  std::array<at::Tensor, 2> biases;
  on_ranks(2, [&](ProcessGroup& group) {
    const NamedTensors parameters = weight_and_bias();
    const auto zero = scattering_sgd(parameters, group);
    DistributedDataParallel ddp = ddp_of(parameters, *zero, group);
    ddp.forward([&] {
         const at::Tensor sum = parameters[0].second.sum();
         return group.rank() == 1 ? sum + parameters[1].second.sum() : sum;
       })
        .backward();
    zero->step();
    biases[group.rank()] = parameters[1].second.detach();
  });
  for (const at::Tensor& bias : biases)
    EXPECT_TRUE(bias.equal(at::full({7}, 0.2f * -0.5f))) << bias;
}

// 64 elements each: of three ranks' parts, two end within a parameter; buckets of one parameter and
// of both.
TEST(Zero, GivesEachRankItsShardOfTheAverage) {
  constexpr int kRanks = 3;
  for (const double bucket_cap_mb : {1e-4, 25.0}) {
    for (const bool compresses : {false, true}) {
      std::array<std::vector<at::Tensor>, kRanks> parts;
      on_ranks(kRanks, [&](ProcessGroup& group) {
        const NamedTensors parameters = {{"first", at::zeros({8, 8}).set_requires_grad(true)},
                                         {"second", at::zeros({64}).set_requires_grad(true)}};
        const auto zero = scattering_sgd(parameters, group);
        CommHook hook = *zero->comm_hook();
        if (compresses) hook = bf16_compress_wrapper(std::move(hook));
        DistributedDataParallel ddp(
            {.parameters = parameters, .buffers = {}}, group,
            {.bucket_cap_mb = bucket_cap_mb, .gradient_as_bucket_view = true, .comm_hook = hook});
        // 6 i on average.
        const at::Tensor slope = at::arange(64, at::kFloat) * 3 * (group.rank() + 1);
        const auto loss = [&] {
          return (parameters[0].second.view(-1) * slope).sum() -
                 (parameters[1].second * slope).sum();
        };
        for (int step = 0; step < 2;
             ++step) {  // the second one has the buckets in the order of gradients
          zero->zero_grad();
          {
            const DistributedDataParallel::NoSync no_sync(ddp);
            ddp.forward(loss).backward();
          }
          ddp.forward(loss).backward();
        }
        for (const at::Tensor& piece : zero->averaged())
          parts[group.rank()].push_back(piece.grad().clone());
      });
      std::vector<at::Tensor> all;
      for (const auto& part : parts) {
        std::int64_t size = 0;
        for (const at::Tensor& piece : part) size += piece.numel();
        EXPECT_LE(size, 48);
        all.insert(all.end(), part.begin(), part.end());
      }
      const at::Tensor average = at::arange(64, at::kFloat) * 12;
      EXPECT_TRUE(at::cat(all).allclose(at::cat({average, -average}), compresses ? 1e-2 : 1e-6))
          << at::cat(all);
    }
  }
}

// The gradient of the last layer is on its way before that of the first one is computed.
TEST(Zero, ReducesWhileBackwardRuns) {
  const NamedTensors parameters = weight_and_bias();
  const auto zero = zero_of(parameters, GradientAverage::kReduceScatter);
  std::vector<std::string> events;
  CommHook hook = *zero->comm_hook();
  hook.run = [&events, run = hook.run](c10d::GradBucket& bucket) {
    events.push_back("bucket " + std::to_string(bucket.getIndex()));
    return run(bucket);
  };
  DistributedDataParallel ddp({.parameters = parameters, .buffers = {}}, alone(),
                              {.bucket_cap_mb = 1e-5, .comm_hook = hook});
  for (int step = 0; step < 2; ++step) {
    events.clear();
    zero->zero_grad();
    ddp.forward([&] {
         at::Tensor first = parameters[0].second.sum() * 2;
         first.register_hook(
             [&](const at::Tensor&) { events.push_back("backward of the first layer"); });
         return (first * parameters[1].second).sum();
       })
        .backward();
  }
  EXPECT_EQ(events,
            (std::vector<std::string>{"bucket 0", "backward of the first layer", "bucket 1"}));
}

// As DDP does: a rank's own would go its own way.
TEST(Zero, LetsDdpBroadcastBuffers) {
  std::array<std::vector<double>, 2> seen;
  on_ranks(2, [&](ProcessGroup& group) {
    const NamedTensors parameters = weight_and_bias();
    const at::Tensor mean = at::zeros({});
    const auto zero = scattering_sgd(parameters, group);
    DistributedDataParallel ddp({.parameters = parameters, .buffers = {{"running_mean", mean}}},
                                group, {.comm_hook = zero->comm_hook()});
    for (int step = 0; step < 3; ++step) {
      zero->zero_grad();
      ddp.forward([&] {
           seen[group.rank()].push_back(mean.item<double>());
           mean.add_(group.rank() + 1);
           return parameters[0].second.sum() + parameters[1].second.sum();
         })
          .backward();
      zero->step();
    }
  });
  for (const auto& means : seen) EXPECT_EQ(means, (std::vector<double>{0, 1, 2}));
}

TEST(Zero, PutsParametersIntoOneAlignedTensor) {
  const NamedTensors parameters = weight_and_bias();
  const auto zero = zero_of(parameters, GradientAverage::kDdp);
  const auto* first = parameters[0].second.const_data_ptr<float>();
  EXPECT_EQ(parameters[1].second.const_data_ptr<float>(), first + 16);
  EXPECT_EQ(parameters[0].second.sizes(), (std::vector<std::int64_t>{3, 5}));
  EXPECT_TRUE(parameters[0].second.equal(at::ones({3, 5})));
  EXPECT_TRUE(parameters[0].second.is_leaf());
}

TEST(Zero, LeavesGradientsToDdpOnGloo) {
  EXPECT_FALSE(zero_of(weight_and_bias(), GradientAverage::kAuto)->comm_hook());
  EXPECT_TRUE(zero_of(weight_and_bias(), GradientAverage::kReduceScatter)->comm_hook());
}

TEST(Zero, RejectsMixedTypes) {
  NamedTensors parameters = weight_and_bias();
  parameters[1].second = at::zeros({7}, at::kDouble);
  EXPECT_TRUE(contains(error_of([&] { zero_of(parameters, GradientAverage::kDdp); }),
                       "'bias' has another type or device than 'weight'"));
}

TEST(StatePieces, KeepsTheWantedRangeOfAllPieces) {
  const at::Tensor whole = at::arange(10, at::kFloat), step = at::full({}, 4.0);
  for (const std::int64_t cut : {1, 5, 9}) {
    for (const auto& [begin, end] : {std::pair{0, 10}, {0, 3}, {4, 8}, {9, 10}}) {
      StatePieces pieces({{"p", {.begin = begin, .end = end, .total = 10}}});
      pieces.add({{"p.exp_avg", whole.narrow(0, 0, cut)}, {"p.step", step}});
      pieces.add({{"p.exp_avg", whole.narrow(0, cut, 10 - cut)}, {"p.step", step}});
      const NamedTensors taken = pieces.take();
      ASSERT_EQ(taken.size(), 2u);
      EXPECT_TRUE(taken[0].second.equal(whole.narrow(0, begin, end - begin)))
          << cut << " " << begin;
      EXPECT_TRUE(taken[1].second.equal(step));
    }
  }
}

TEST(StatePieces, NamesWhatIsMissing) {
  StatePieces pieces({{"p", {.begin = 0, .end = 10, .total = 10}},
                      {"elsewhere", {.begin = 4, .end = 4, .total = 10}}});
  pieces.add({{"p.exp_avg", at::ones({7})},
              {"elsewhere.exp_avg", at::ones({7})},
              {"other.exp_avg", at::ones({7})}});
  EXPECT_TRUE(
      contains(error_of([&] { pieces.take(); }), "'p.exp_avg' has 7 elements, expected 10"));
  StatePieces twice({{"p", {.begin = 0, .end = 10, .total = 10}}});
  twice.add({{"p.exp_avg", at::ones({10})}, {"p.step", at::ones({})}});
  EXPECT_EQ(error_of([&] { twice.add({{"p.step", at::ones({})}}); }), "");
  EXPECT_EQ(error_of([&] {
              twice.add({{"p.exp_avg", at::ones({10})}});
            }),
            "optimizer state 'p.exp_avg' is in more than one file");
  StatePieces unknown({});
  unknown.add({{"other.exp_avg", at::ones({7})}});
  EXPECT_EQ(unknown.take().size(), 1u);  // Optimizer::load_state names it
}

}  // namespace
}  // namespace torchbridge::train
