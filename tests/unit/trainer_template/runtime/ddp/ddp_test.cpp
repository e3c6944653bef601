#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torchbridge/ddp.h>

#include "tests/support/alone.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

ModelTensors two_weights() {
  return {.parameters = {{"a", at::ones({2}).set_requires_grad(true)},
                         {"b", at::ones({2}).set_requires_grad(true)}},
          .buffers = {{"running_mean", at::zeros({2})}}};
}

void one_step(DistributedDataParallel& ddp, const ModelTensors& model) {
  for (const auto& [name, parameter] : model.parameters) parameter.mutable_grad().reset();
  ddp.forward([&] { return (model.parameters[0].second * model.parameters[1].second * 3).sum(); })
      .backward();
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
        SCOPED_TRACE(testing::Message()
                     << "view " << view << " unused " << unused << " static " << is_static);
        const ModelTensors model = two_weights();
        DistributedDataParallel ddp(model, alone(),
                                    {.gradient_as_bucket_view = view,
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
  ddp.forward([&] { return (model.parameters[0].second * model.parameters[1].second).sum(); })
      .backward();
  expect_gradients(model, 4);
}

TEST(Ddp, JoinsOnOneRank) {
  const ModelTensors model = two_weights();
  DistributedDataParallel ddp(model, alone());
  ASSERT_EQ(ddp.logging_data().strings.size(), 0u);  // no reducer
  join({&ddp}, alone(), {}, [&] { one_step(ddp, model); });
  expect_gradients(model, 3);
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

TEST(Ddp, RejectsALayoutOfAnotherModel) {
  const ModelTensors model = two_weights();
  for (const BucketLayout& layout :
       {BucketLayout{{0}}, {{0, 1, 2}}, {{0, 0}}, {{0, 5}}, {{0, 1}, {}}}) {
    EXPECT_TRUE(
        contains(error_of([&] { DistributedDataParallel(model, alone(), {.buckets = layout}); }),
                 "do not fit the model's 2 parameters"));
  }
}

TEST(Ddp, RejectsAModelWithoutGradients) {
  const ModelTensors model{.parameters = {{"a", at::ones({2})}}, .buffers = {}};
  EXPECT_TRUE(contains(error_of([&] { DistributedDataParallel(model, alone()); }),
                       "no parameter that requires a gradient"));
}

struct OwnOutputs {
  at::Tensor first;
  std::vector<at::Tensor> more;
};

template <class Visit>
void visit_tensors(OwnOutputs& outputs, Visit&& visit) {
  visit(outputs.first);
  torchbridge::train::visit_tensors(outputs.more, visit);
}

std::size_t tensors_in(auto output) {
  using torchbridge::train::visit_tensors;  // in addition to the one for OwnOutputs
  std::size_t count = 0;
  visit_tensors(output, [&](at::Tensor& tensor) {
    tensor = tensor + 1;
    ++count;
  });
  return count;
}

TEST(OutputTensors, AreFoundInAnyNest) {
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(tensors_in(one), 1u);
  EXPECT_EQ(tensors_in(std::vector<at::Tensor>{one, at::Tensor(), one}), 2u);
  EXPECT_EQ(tensors_in(std::tuple(one, 3, std::string("x"), std::optional<at::Tensor>(one))), 2u);
  EXPECT_EQ(tensors_in(std::map<std::string, std::pair<at::Tensor, std::vector<at::Tensor>>>{
                {"a", {one, {one}}}}),
            2u);
  EXPECT_EQ(tensors_in(OwnOutputs{one, {one, one}}), 3u);
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  dict.insert("a", one);
  EXPECT_EQ(tensors_in(c10::IValue(std::make_tuple(one, std::vector<at::Tensor>{one, one}, dict))),
            4u);
}

TEST(Ddp, ReplacesTheTensorsOfTheOutputByThoseOfItsSink) {
  const ModelTensors model = two_weights();
  DistributedDataParallel ddp(model, alone(), {.find_unused_parameters = true});
  for (int step = 0; step < 2; ++step) {
    for (const auto& [name, parameter] : model.parameters) parameter.mutable_grad().reset();
    OwnOutputs outputs = ddp.forward(
        [&](double factor) {
          return OwnOutputs{(model.parameters[0].second * factor).sum(),
                            {model.parameters[1].second.sum(), at::ones({1})}};
        },
        3.0);
    outputs.first.backward();  // the other outputs are in no loss
    EXPECT_EQ(model.parameters[0].second.grad()[0].item<double>(), 3);
    EXPECT_FALSE(model.parameters[1].second.grad().defined());
  }
}

TEST(Ddp, HasLoggingData) {
  const ModelTensors model = two_weights();
  DistributedDataParallel ddp(model, alone(), {.bucket_cap_mb = 2});
  ddp.register_comm_hook(fp16_compress_wrapper(allreduce_hook(alone())));
  for (int step = 0; step < 3; ++step) one_step(ddp, model);
  const DdpLoggingData data = ddp.logging_data();
  EXPECT_EQ(data.strings.at("comm_hook"), "fp16_compress_wrapper(allreduce_hook)");
  EXPECT_EQ(data.numbers.at("bucket_cap_bytes"), 2 << 20);
  EXPECT_GT(data.numbers.at("avg_backward_compute_time"), 0);
}

TEST(Ddp, RejectsImpossibleOptions) {
  const std::pair<DdpOptions, const char*> cases[] = {
      {{.bucket_cap_mb = 0}, "expected more than 0"},
      {{.delay_all_reduce = {.names = {"a"}}}, "needs both"},
      {{.delay_all_reduce = {.names = {"c"}, .until = "a"}}, "'c', which is not a parameter"},
      {{.delay_all_reduce = {.names = {"a", "b"}, .until = "a"}}, "names all parameters"},
  };
  for (const auto& [options, message] : cases) {
    EXPECT_TRUE(contains(
        error_of([&] { DistributedDataParallel(two_weights(), alone(), options); }), message));
  }
}

TEST(ProcessGroup, OfOneRankNeedsNoOther) {
  ProcessGroup group(Launch{}, {});
  EXPECT_EQ(group.world_size(), 1);
  group.barrier();
  EXPECT_EQ(group.minimum(7), 7);
  EXPECT_EQ(group.broadcast(std::string("text")), "text");
  EXPECT_EQ(group.all_gather(""), std::vector<std::string>{""});
  EXPECT_TRUE(
      contains(error_of([&] { all_or_none(group, [] { throw TrainError("mine"); }); }), "mine"));
  group.leave();
}

}  // namespace
}  // namespace torchbridge::train
