#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torchbridge/train/ddp/ddp.h>

#include "alone.h"
#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

ModelTensors two_weights() {
  return {.parameters = {{"a", at::ones({2}).set_requires_grad(true)}, {"b", at::ones({2}).set_requires_grad(true)}},
          .buffers = {{"running_mean", at::zeros({2})}}};
}

void one_step(DistributedDataParallel& ddp, const ModelTensors& model) {
  for (const auto& [name, parameter] : model.parameters) parameter.mutable_grad().reset();
  ddp.forward([&] { return (model.parameters[0].second * model.parameters[1].second * 3).sum(); }).backward();
}

void expect_gradients(const ModelTensors& model, double value) {
  for (const auto& [name, parameter] : model.parameters) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_EQ(parameter.grad()[0].item<double>(), value) << name;
  }
}

TEST(Ddp, GivesGradientsInEveryMode) {
  for (bool view : {false, true}) {
    for (bool unused : {false, true}) {
      for (bool is_static : {false, true}) {
        SCOPED_TRACE(testing::Message() << "view " << view << " unused " << unused << " static " << is_static);
        const ModelTensors model = two_weights();
        DistributedDataParallel ddp(model, alone(), {.gradient_as_bucket_view = view,
                                                     .find_unused_parameters = unused,
                                                     .static_graph = is_static});
        for (int step = 0; step < 3; ++step) {
          one_step(ddp, model);
          expect_gradients(model, 3);
        }
      }
    }
  }
}

TEST(Ddp, AccumulatesWithoutSynchronising) {
  const ModelTensors model = two_weights();
  DistributedDataParallel ddp(model, alone());
  one_step(ddp, model);
  {
    const DistributedDataParallel::NoSync no_sync(ddp);
    one_step(ddp, model);
  }
  ddp.forward([&] { return (model.parameters[0].second * model.parameters[1].second).sum(); }).backward();
  expect_gradients(model, 4);
}

TEST(Ddp, GivesTheLayoutThatTheNextStepUses) {
  const ModelTensors model = two_weights();
  DistributedDataParallel ddp(model, alone());
  one_step(ddp, model);
  const BucketLayout layout = ddp.buckets();
  one_step(ddp, model);
  EXPECT_EQ(ddp.buckets(), layout);
  DistributedDataParallel again(model, alone(), {.buckets = layout});
  EXPECT_EQ(again.buckets(), layout);
}

TEST(Ddp, RefusesALayoutOfAnotherModel) {
  const ModelTensors model = two_weights();
  for (const BucketLayout& layout : {BucketLayout{{0}}, {{0, 1, 2}}, {{0, 0}}, {{0, 5}}, {{0, 1}, {}}}) {
    EXPECT_TRUE(contains(error_of([&] { DistributedDataParallel(model, alone(), {.buckets = layout}); }),
                         "do not fit the model's 2 parameters"));
  }
}

TEST(Ddp, RefusesAModelThatCannotLearn) {
  const ModelTensors model{.parameters = {{"a", at::ones({2})}}, .buffers = {}};
  EXPECT_TRUE(contains(error_of([&] { DistributedDataParallel(model, alone()); }), "no parameter that requires a gradient"));
}

TEST(ProcessGroup, OfOneRankNeedsNobody) {
  ProcessGroup group(Launch{}, {});
  EXPECT_EQ(group.world_size(), 1);
  group.barrier();
  EXPECT_EQ(group.minimum(7), 7);
  EXPECT_EQ(group.broadcast(std::string("text")), "text");
  EXPECT_EQ(group.all_gather(""), std::vector<std::string>{""});
  EXPECT_TRUE(contains(error_of([&] { all_or_none(group, [] { throw TrainError("mine"); }); }), "mine"));
  group.leave();
}

}  // namespace
}  // namespace torchbridge::train
