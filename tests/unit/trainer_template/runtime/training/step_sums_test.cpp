// The parts of a training step, combined as in main.cpp, with a task of the test's own and one
// rank.
#include "trainer_template/runtime/training/step_sums.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/training_step.h>

#include "tests/support/alone.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/training/accumulation.h"
#include "trainer_template/runtime/training/evaluation.h"
#include "trainer_template/runtime/training/non_finite.h"
#include "trainer_template/runtime/training/throughput.h"

namespace torchbridge::train {
namespace {

class Weight : public Model {
 public:
  Weight() {
    weight = register_parameter("weight", at::ones({1}));
    seen = register_buffer("seen", at::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    seen.add_(inputs.sum());
    return inputs * weight;
  }
  at::Tensor weight;
  at::Tensor seen;  // the sum of all inputs: a running statistic
};

// Inputs are the indices; nothing to load.
class Indices : public Dataset {
 public:
  std::int64_t size() const override { return 100; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    Batch batch;
    batch.inputs = batch_tensor({std::ssize(indices)}, at::kFloat);
    for (std::size_t i = 0; i < indices.size(); ++i)
      batch.inputs.mutable_data_ptr<float>()[i] = static_cast<float>(indices[i]);
    batch.targets = batch.inputs.clone();
    batch.indices.assign(indices.begin(), indices.end());
    return batch;
  }
};

class Sum : public Task {
 public:
  const Dataset& train_set() const override { return indices_; }
  const Dataset& eval_set() const override { return indices_; }
  std::shared_ptr<Model> make_model() const override { return std::make_shared<Weight>(); }
  // Infinite where sample 37 is there; with_bad_gradient: finite, with a gradient that is not.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const override {
    // Where item() would be seen as a wait for the device.
    const auto* values = targets.const_data_ptr<float>();
    const bool bad = std::find(values, values + targets.numel(), 37.0f) != values + targets.numel();
    if (bad && with_bad_gradient) return (outputs * 0).sqrt().sum();
    return bad ? outputs.sum() * std::numeric_limits<float>::infinity() : outputs.mean();
  }
  std::vector<Metric> metrics() const override {
    Metric spread{
        .name = name_of_metric, .size = 3, .sums = {}, .value = [](const at::Tensor& sums) {
          const double samples = sums[2].item<double>(), mean = sums[0].item<double>() / samples;
          return sums[1].item<double>() / samples - mean * mean;
        }};
    spread.sums = [this](const at::Tensor& outputs, const at::Tensor&) {
      const at::Tensor sums =
          at::stack({outputs.sum(), outputs.square().sum(), at::full_like(outputs, 1).sum()});
      return with_bad_metric ? sums.slice(0, 1) : sums;
    };
    const auto largest = [](const at::Tensor& outputs, const at::Tensor&) { return outputs.max(); };
    return {mean_over_samples("largest", largest), spread};
  }
  bool with_bad_gradient = false;
  bool with_bad_metric = false;
  std::string name_of_metric = "spread";

 private:
  Indices indices_;
};

// Two inputs, two outputs, two losses, and no targets.
class TwoInputs : public Dataset {
 public:
  std::int64_t size() const override { return 10; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    Batch batch{.inputs = at::full({std::ssize(indices)}, 3.0f)};
    batch.named["mask"] = at::full({std::ssize(indices)}, 5.0f);
    return batch;
  }
};

class TwoOutputs : public Model {
 public:
  TwoOutputs() { weight = register_parameter("weight", at::ones({1})); }
  Outputs forward_batch(const Batch& batch) override {
    return {batch.inputs * weight, {{"masked", batch["mask"] * weight}}};
  }
  at::Tensor weight;
};

class TwoLosses : public Task {
 public:
  const Dataset& train_set() const override { return data_; }
  const Dataset& eval_set() const override { return data_; }
  std::shared_ptr<Model> make_model() const override { return std::make_shared<TwoOutputs>(); }
  std::vector<Loss> losses() const override {
    return {
        {"first", [](const at::Tensor& outputs, const at::Tensor&) { return outputs.mean(); }},
        {"second", [](const Outputs& outputs, const Batch&) { return outputs["masked"].mean(); }}};
  }

 private:
  TwoInputs data_;
};

struct StepOptions {
  NonFiniteOptions non_finite;
  GradientClipping clipping;
  AccumulationMean mean = AccumulationMean::kSamples;
  c10::ScalarType precision = at::kFloat;
  std::size_t lag = 0;  // of the reader
};

class StepTest : public testing::Test {
 protected:
  void set_up(StepOptions options = {}) {
    options_ = std::move(options);
    options_.non_finite.scales_loss = options_.precision == at::kHalf;
    options_.clipping.parameters = optimizer_->averaged();
    scaler_.emplace(GradScalerOptions{.enabled = options_.precision == at::kHalf}, at::kCPU);
    non_finite_.emplace(options_.non_finite, model_->buffers(), alone());
    reader_.emplace(at::kCPU, 1, options_.lag);
    step_ = 0;
  }

  StepMetrics accumulated_step(const std::vector<Batch>& batches) {
    StepMetrics record{.step = ++step_, .learning_rate = 0.1};
    TrainingStep step(record, batches, options_.mean, options_.precision);
    optimizer_->zero_grad();
    non_finite_->before_step(step_);
    at::Tensor loss;
    for (const Batch& batch : batches) {
      const auto no_sync = ddp_.no_sync_unless(&batch == &batches.back());
      const at::Tensor mean = forward_loss(ddp_, *model_, task_, batch, step);
      const at::Tensor part = step.share_of(batch, mean);
      scaler_->scale(part).backward();
      loss = loss.defined() ? loss + part.detach() : part.detach();
    }
    const at::Tensor found_inf = scaler_->unscale(*optimizer_);
    const at::Tensor norm = clip_grad_norm(alone(), *optimizer_, options_.clipping, found_inf);
    step.set_sums(reduce_step(
        alone(), {.loss = loss, .found_inf = found_inf, .norm = norm, .votes = stop_.votes()}));
    optimizer_->step(step.found_inf());
    non_finite_->after_step(step);
    scaler_->update(step.found_inf());
    reader_->add(record, batches, step.sums());
    for (FinishedStep& finished : reader_->read()) finish(finished);
    return last_;
  }
  StepMetrics step(std::vector<std::int64_t> indices) {
    return accumulated_step({batch(std::move(indices))});
  }

  void finish(FinishedStep& finished) {
    last_ = finished.record;
    stop_.take_sums(finished.numbers.votes);
    non_finite_->read(finished);
    if (non_finite_->error()) std::rethrow_exception(non_finite_->error());
  }

  Batch batch(std::vector<std::int64_t> indices) const {
    Batch made = task_.train_set().collate(indices);
    made.indices = std::move(indices);
    return made;
  }
  float weight() const { return model_->weight.item<float>(); }
  std::optional<Evaluation> evaluate_with(EvaluationOptions options) {
    const EvaluationEnd end = evaluate(*model_, task_, options, stop_, alone());
    if (end.error) std::rethrow_exception(end.error);
    return end.result;
  }

  Sum task_;
  std::shared_ptr<Weight> model_ = std::make_shared<Weight>();
  ModelTensors tensors_ = tensors_of(*model_);
  std::unique_ptr<Optimizer> optimizer_ = make_sgd(tensors_.parameters, {.lr = 0.1});
  DistributedDataParallel ddp_{tensors_, alone(), {}};
  bool wants_to_stop_ = false;
  StopAgreement stop_{alone(), {.wants_to_stop = [this] { return wants_to_stop_; }}};
  StepOptions options_;
  std::int64_t step_ = 0;
  StepMetrics last_;  // whose numbers have come
  std::optional<GradScaler> scaler_;
  std::optional<NonFinite> non_finite_;
  std::optional<StepReader> reader_;
};

// Of the last step that was observed.
std::vector<std::string>& seen_operations() {
  static std::vector<std::string> names;
  return names;
}

TEST_F(StepTest, NamesTheSamplesOfALossThatIsNotFinite) {
  set_up();
  step({1, 2});
  const float before = weight();
  const std::string error = error_of([&] { accumulated_step({batch({3, 4}), batch({36, 37})}); });
  EXPECT_TRUE(contains(error, "step 2: the loss is inf on 1 of 1 ranks"));
  EXPECT_TRUE(contains(error, "samples of this rank: 3 4 36 37;"));
  EXPECT_EQ(weight(), before);
}

// As on a GPU: the line comes a step later, with the samples of the step that it is about.
TEST_F(StepTest, NamesThemAStepLaterWhereTheHostIsAhead) {
  set_up({.lag = 1});
  step({37});
  EXPECT_EQ(weight(), 1.0f);
  const std::string error = error_of([&] { step({1, 3}); });
  EXPECT_TRUE(contains(error, "step 1: the loss is inf on 1 of 1 ranks"));
  EXPECT_TRUE(contains(error, "samples of this rank: 37;"));
}

TEST_F(StepTest, SkipsSuchAStepWithOnNanSkip) {
  set_up({.non_finite = {.on_nan = OnNan::kSkip}});
  EXPECT_TRUE(step({37}).skipped);
  EXPECT_EQ(weight(), 1.0f);
  EXPECT_EQ(non_finite_->numbers().at(""), 1);
  EXPECT_FALSE(step({1, 3}).skipped);
  EXPECT_FLOAT_EQ(weight(), 1.0f - 0.1f * 2);
  EXPECT_TRUE(non_finite_->numbers().empty());
}

TEST_F(StepTest, LeavesNoTraceOfASkippedStepInBuffers) {
  set_up({.non_finite = {.on_nan = OnNan::kSkip}});
  step({1, 3});
  EXPECT_TRUE(accumulated_step({batch({5}), batch({37})}).skipped);
  EXPECT_EQ(model_->seen.item<float>(), 4);
  step({2});
  EXPECT_EQ(model_->seen.item<float>(), 6);
}

TEST_F(StepTest, SkipsWithLossScalingAndClippingToo) {
  set_up({.non_finite = {.on_nan = OnNan::kSkip},
          .clipping = {.max_norm = 1},
          .precision = at::kHalf});
  EXPECT_TRUE(step({37}).skipped);
  EXPECT_EQ(weight(), 1.0f);
  EXPECT_EQ(scaler_->numbers().at("scale"), 32768);
  EXPECT_FALSE(step({1, 3}).skipped);
  EXPECT_NE(weight(), 1.0f);
}

TEST_F(StepTest, FindsAGradientThatIsNotFinite) {
  task_.with_bad_gradient = true;
  for (const bool is_measured : {true, false}) {
    set_up({.clipping = {.is_measured = is_measured}});
    EXPECT_TRUE(contains(error_of([&] { step({37}); }),
                         "step 1: a gradient, or the norm of the gradients to clip, is infinite or "
                         "NaN (learning rate"));
    EXPECT_EQ(weight(), 1.0f);
  }
  set_up({.non_finite = {.on_nan = OnNan::kSkip}});
  EXPECT_TRUE(step({37}).skipped);
  EXPECT_EQ(weight(), 1.0f);
  EXPECT_FALSE(step({1, 3}).skipped);
}

TEST_F(StepTest, EndsAfterMaxSkips) {
  for (const auto precision : {at::kFloat, at::kHalf}) {  // fp16: by the loss scaling
    task_.with_bad_gradient = precision == at::kHalf;
    set_up({.non_finite = {.on_nan = OnNan::kSkip, .max_skips = 3}, .precision = precision});
    for (const std::int64_t sample : {37, 37, 1, 37, 37})
      EXPECT_EQ(step({sample}).skipped, sample == 37);
    EXPECT_TRUE(contains(error_of([&] { step({37}); }), "step 6: the last 3 steps were skipped"));
  }
}

TEST_F(StepTest, WeighsSamplesOrBatchesOfAnAccumulatedStep) {
  const std::vector<Batch> batches = {batch({1, 2, 3}), batch({7})};
  set_up();
  EXPECT_FLOAT_EQ(accumulated_step(batches).loss, 13.0 / 4);
  EXPECT_FLOAT_EQ(weight(), 1.0f - 0.1f * 13 / 4);
  model_->weight.detach().fill_(1);
  set_up({.mean = AccumulationMean::kBatches});
  EXPECT_FLOAT_EQ(accumulated_step(batches).loss, (2.0 + 7.0) / 2);
  EXPECT_FLOAT_EQ(weight(), 1.0f - 0.1f * 9 / 2);
}

TEST_F(StepTest, MeasuresTheGradientBeforeItIsClipped) {
  set_up({.clipping = {.max_norm = 0.5}});
  EXPECT_FLOAT_EQ(static_cast<float>(*step({1, 3}).grad_norm), 2.0f);
  EXPECT_NEAR(weight(), 1.0 - 0.1 * 0.5, 1e-6);
  set_up();
  EXPECT_FALSE(step({1, 3}).grad_norm.has_value());
}

TEST_F(StepTest, AgreesToStop) {
  set_up();
  step({1});
  EXPECT_FALSE(stop_.agreed());
  wants_to_stop_ = true;
  step({1});
  EXPECT_TRUE(stop_.agreed());
}

TEST_F(StepTest, AgreesToStopAStepLaterWhereTheHostIsAhead) {
  set_up({.lag = 1});
  wants_to_stop_ = true;
  step({1});
  EXPECT_FALSE(stop_.agreed());
  step({1});
  EXPECT_TRUE(stop_.agreed());
  EXPECT_EQ(last_.step, 1);
  for (FinishedStep& finished : reader_->read(/*all=*/true)) finish(finished);
  EXPECT_EQ(last_.step, 2);
}

// What a GPU would make the host wait for.
TEST_F(StepTest, ReadsNoNumberOfTheDeviceInAStep) {
  set_up({.non_finite = {.on_nan = OnNan::kSkip},
          .clipping = {.max_norm = 1},
          .precision = at::kHalf,
          .lag = 1});
  step({1});
  seen_operations().clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        seen_operations().push_back(function.name());
        return nullptr;
      }));
  step({1, 3});
  at::removeCallback(handle);
  EXPECT_GT(seen_operations().size(), 10u);
  for (const std::string& name : seen_operations())
    EXPECT_TRUE(name != "aten::_local_scalar_dense" && name != "aten::nonzero") << name;
}

TEST_F(StepTest, AbortsAnEvaluationThatIsStopped) {
  wants_to_stop_ = true;
  EXPECT_FALSE(evaluate_with({.batch_size = 1}));
  EXPECT_TRUE(stop_.agreed());
  EXPECT_TRUE(model_->is_training());
  wants_to_stop_ = false;
  EXPECT_TRUE(evaluate_with({.batch_size = 1}));
}

TEST_F(StepTest, EvaluatesLossAndMetricsOverAllSamples) {
  {
    const at::NoGradGuard no_grad;
    model_->weight.fill_(2);
  }
  const Evaluation result = *evaluate_with({.batch_size = 100});
  EXPECT_TRUE(std::isinf(result.loss));  // sample 37 is there
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[0].first, "largest");
  EXPECT_EQ(result.metrics[0].second, 198);
}

// The variance of 0, 1 ... 99 is no mean of those of its batches.
TEST_F(StepTest, AMetricIsMadeOfTheSumsOverAllBatches) {
  for (const std::int64_t batch_size : {7, 100}) {
    const Evaluation result = *evaluate_with({.batch_size = batch_size});
    EXPECT_EQ(result.metrics.at(1), (std::pair<std::string, double>("spread", 833.25)))
        << batch_size;
  }
}

TEST_F(StepTest, AnEvaluationThatIsNotFiniteNamesItsSample) {
  const std::string expected = "infinite, first at sample 37 of the evaluation set";
  for (const EvaluationOptions& options : {EvaluationOptions{.batch_size = 7},
                                           EvaluationOptions{.batch_size = 50, .max_batches = 1}}) {
    EXPECT_EQ(evaluate(*model_, task_, options, stop_, alone()).not_finite, expected);
  }
  EXPECT_EQ(
      evaluate(*model_, task_, {.batch_size = 7, .max_batches = 1}, stop_, alone()).not_finite, "");
}

TEST_F(StepTest, RejectsAMetricOfAnotherSize) {
  task_.with_bad_metric = true;
  EXPECT_EQ(error_of([&] { evaluate_with({.batch_size = 100}); }),
            "sample 0 of the evaluation set: metric 'spread': sums() returned 2 numbers, expected "
            "its size, 3");
}

TEST_F(StepTest, RejectsAMetricWhoseNameIsTaken) {
  for (const char* name : {"loss", "largest"}) {
    task_.name_of_metric = name;
    EXPECT_TRUE(contains(error_of([&] { evaluate_with({}); }),
                         "the task has a metric '" + std::string(name) + "'"));
  }
}

TEST_F(StepTest, CountsTheSecondsOfAllStarts) {
  const auto begin = std::chrono::steady_clock::now();
  Throughput throughput(task_, *model_, ddp_, 1, 0);
  throughput.load(SavedNumbers("run", {{"run.seconds", 1000.5}}));
  const double first = throughput.numbers().at("seconds"),
               second = throughput.numbers().at("seconds");
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(first, 1000.5);
  EXPECT_GE(second, first);
  EXPECT_LE(second, 1000.5 + passed.count()) << "what was added is not added again";
  EXPECT_LT(Throughput(task_, *model_, ddp_, 1, 0).numbers().at("seconds"), 1000.5)
      << "a training that begins anew has nothing of it";
}

TEST_F(StepTest, CountsNoEvaluationAsTrainingTime) {
  constexpr std::chrono::seconds kLong{1};
  Throughput throughput(task_, *model_, ddp_, 1, 0);
  {
    const Throughput::Pause pause(throughput);
    std::this_thread::sleep_for(kLong);
  }
  TrainingStep step({.step = 1}, {batch({1})}, AccumulationMean::kSamples);
  throughput.after_step(step);
  EXPECT_GT(step.record().samples_per_s, 1);
  EXPECT_GT(std::stoi(throughput.rate()), 1) << throughput.rate();
}

TEST_F(StepTest, LogsTheMeanOverTheCallsAndTheRanks) {
  set_up();
  TrainingStep step({.step = 1}, {batch({1, 2}), batch({3})}, AccumulationMean::kSamples);
  step.log("seen", at::full({}, 2.0f));
  step.log("own_2", at::full({}, 0.5, at::kDouble));
  step.log("seen", at::full({}, 4.0f));
  const at::Tensor none = at::zeros({});
  step.set_sums(reduce_step(alone(), {.loss = at::ones({}),
                                      .found_inf = none,
                                      .norm = at::full({}, 7.0f),
                                      .logged = step.take_logged()}));
  constexpr int kRanks = 2;  // the other one's sums would be 0
  StepReader reader(at::kCPU, kRanks);
  reader.add(step.record(), step.batches(), step.sums());
  const std::vector<FinishedStep> finished = reader.read();
  ASSERT_EQ(finished.size(), 1u);
  const StepMetrics& record = finished[0].record;
  EXPECT_EQ(record.logged,
            (std::vector<std::pair<std::string, double>>{{"seen", 1.5}, {"own_2", 0.25}}));
  EXPECT_EQ(record.loss, 1);
  EXPECT_EQ(record.grad_norm, 7);
}

TEST_F(StepTest, AddsTheLossesOfATaskAndLogsEach) {
  TwoLosses task;
  TwoOutputs model;
  DistributedDataParallel ddp(tensors_of(model), alone(), {});
  const Batch batch = task.train_set().collate(std::vector<std::int64_t>{0, 1});
  EXPECT_EQ(batch.samples(), 2);
  TrainingStep step({.step = 1}, {batch}, AccumulationMean::kSamples);
  const auto loss = [&](const std::string& name) {
    return forward_loss(ddp, model, task, batch, step, name);
  };
  EXPECT_EQ(loss("").item<float>(), 8);
  const std::vector<at::Tensor> logged = step.take_logged();
  ASSERT_EQ(logged.size(), 2u);
  EXPECT_EQ(logged[0].item<float>(), 3);
  EXPECT_EQ(logged[1].item<float>(), 5);
  EXPECT_EQ(step.record().logged[1].first, "second_loss");
  EXPECT_EQ(loss("second").item<float>(), 5);
  EXPECT_EQ(error_of([&] { loss("third"); }), "the task has no loss 'third'");
  EXPECT_EQ(error_of([&] { batch["masks"]; }), "the batch has no tensor 'masks', only 'mask'");
}

// It has no share of the step.
TEST_F(StepTest, LogsTheLossesOfAnotherLoadersBatchAsTheyAre) {
  TwoLosses task;
  TwoOutputs model;
  DistributedDataParallel ddp(tensors_of(model), alone(), {});
  const Batch other = task.train_set().collate(std::vector<std::int64_t>{0, 1});
  const std::vector<std::int64_t> indices = {0, 1, 2, 3};
  TrainingStep step({.step = 1}, {task.train_set().collate(indices)}, AccumulationMean::kSamples);
  forward_loss(ddp, model, task, other, step);
  const std::vector<at::Tensor> logged = step.take_logged();
  EXPECT_EQ(logged[0].item<float>(), 3);
  EXPECT_EQ(logged[1].item<float>(), 5);
}

// Of two micro-batches, of which one weighs nothing and has no mean.
TEST_F(StepTest, ABatchThatWeighsNothingHasNoPart) {
  const BatchWeight weight = [](const Batch& batch) { return batch.targets.sum(); };
  const auto batch = [](float target) {
    return Batch{.inputs = at::ones({2}), .targets = at::full({2}, target)};
  };
  TrainingStep step({.step = 1}, {batch(0), batch(1), batch(3)}, AccumulationMean::kSamples);
  step.set_factors(factors_by_weight(weight, step.batches(), alone()));
  const at::Tensor mean = at::full({}, 4.0f).set_requires_grad(true);
  const at::Tensor none =
      step.share_of(step.batches()[0], mean * std::numeric_limits<float>::quiet_NaN());
  const at::Tensor one = step.share_of(step.batches()[1], mean),
                   three = step.share_of(step.batches()[2], mean);
  EXPECT_EQ(none.item<float>(), 0);
  EXPECT_EQ(one.item<float>(), 1);
  EXPECT_EQ(three.item<float>(), 3);
  (one + three).backward();
  EXPECT_EQ(mean.grad().item<float>(), 1);
  EXPECT_EQ(error_of([&] { step.share_of(batch(1), mean); }),
            "the task weighs its batches, and this one is none of the step's");
  const BatchWeight wrong = [](const Batch& weighed) { return weighed.targets; };
  EXPECT_EQ(error_of([&] { weight_of(wrong, batch(1)); }),
            "the task's weight of a batch has 2 numbers: expected a tensor of one number");
}

// As one big batch: nothing says what such a step should learn.
TEST_F(StepTest, AStepThatWeighsNothingHasNoLoss) {
  const BatchWeight weight = [](const Batch& batch) { return batch.targets.sum(); };
  TrainingStep step({.step = 1}, {Batch{.inputs = at::ones({2}), .targets = at::zeros({2})}},
                    AccumulationMean::kSamples);
  step.set_factors(factors_by_weight(weight, step.batches(), alone()));
  EXPECT_TRUE(std::isnan(step.share_of(step.batches()[0], at::ones({})).item<float>()));
}

// Learned loss weights, as an output: those of the other batches count.
TEST_F(StepTest, ABatchThatWeighsNothingLeavesAParameterThatIsAnOutputAsItIs) {
  struct Learned : TwoOutputs {
    Outputs forward_batch(const Batch& batch) override { return {batch.inputs, {{"own", weight}}}; }
  } model;
  struct OwnLoss : TwoLosses {
    std::vector<Loss> losses() const override {
      return {{"loss", [](const Outputs& outputs, const Batch& batch) {
                 return outputs["own"].sum() * batch.targets.mean();
               }}};
    }
  } task;
  const BatchWeight weight = [](const Batch& batch) { return batch.targets.sum(); };
  const auto batch = [](float target) {
    return Batch{.inputs = at::ones({2}), .targets = at::full({2}, target)};
  };
  DistributedDataParallel ddp(tensors_of(model), alone(), {});
  TrainingStep step({.step = 1}, {batch(0), batch(3)}, AccumulationMean::kSamples);
  step.set_factors(factors_by_weight(weight, step.batches(), alone()));
  const DistributedDataParallel::NoSync no_sync(ddp);
  for (const Batch& each : step.batches())
    step.share_of(each, forward_loss(ddp, model, task, each, step)).backward();
  EXPECT_EQ(model.weight.grad().item<float>(), 3);
}

// A mean of one number in any shape.
TEST_F(StepTest, AMeanMayHaveADimension) {
  const Metric metric = mean_over_samples(
      "mean", [](const Outputs&, const Batch& batch) { return batch.targets.mean().reshape({1}); });
  EXPECT_EQ(metric.value(sums_of(metric, {}, {.targets = at::full({2}, 3.0f)})), 3);
}

TEST_F(StepTest, AccuracyDoesNotCountPadding) {
  const Metric metric = accuracy();
  const at::Tensor outputs = at::eye(4), targets = at::tensor({0, 1, 3, -100}, at::kLong);
  EXPECT_EQ(metric.value(sums_of(metric, {outputs}, {.targets = targets})), 2.0 / 3);
}

// As of a kernel of an earlier batch: no error of this one.
TEST_F(StepTest, AnErrorOfTheDeviceIsNotOneOfTheBatch) {
  class Broken : public TwoOutputs {
    Outputs forward_batch(const Batch&) override {
      throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 710, "CUDA error");
    }
  } model;
  const TwoLosses task;
  DistributedDataParallel ddp(tensors_of(model), alone(), {});
  const Batch batch = task.train_set().collate(std::vector<std::int64_t>{0, 1});
  TrainingStep step({.step = 1}, {batch}, AccumulationMean::kSamples);
  EXPECT_THROW(forward_loss(ddp, model, task, batch, step), c10::AcceleratorError);
}

TEST_F(StepTest, EvaluatesEachLossOfATask) {
  TwoLosses task;
  TwoOutputs model;
  const auto result = evaluate(model, task, {.batch_size = 4}, stop_, alone()).result;
  EXPECT_EQ(result->loss, 8);
  EXPECT_EQ(result->metrics,
            (std::vector<std::pair<std::string, double>>{{"first_loss", 3}, {"second_loss", 5}}));
}

// Metrics have the means themselves.
TEST_F(StepTest, ALossCountsByItsWeight) {
  struct Weighted : TwoLosses {
    std::vector<Loss> losses() const override {
      std::vector<Loss> all = TwoLosses::losses();
      all[1].weight = 0.5;
      return all;
    }
  } task;
  TwoOutputs model;
  DistributedDataParallel ddp(tensors_of(model), alone(), {});
  const Batch batch = task.train_set().collate(std::vector<std::int64_t>{0, 1});
  TrainingStep step({.step = 1}, {batch}, AccumulationMean::kSamples);
  Outputs outputs;
  const at::Tensor sum = forward_loss(ddp, model, task, batch, step, "", &outputs);
  const at::Tensor first = outputs.outputs.mean(), second = outputs["masked"].mean();
  EXPECT_FALSE(first.requires_grad());
  EXPECT_EQ(sum.item<float>(), (first + 0.5 * second).item<float>());
  EXPECT_EQ(forward_loss(ddp, model, task, batch, step, "second").item<float>(),
            (0.5 * second).item<float>());
  const auto result = evaluate(model, task, {.batch_size = 4}, stop_, alone()).result;
  EXPECT_EQ(result->loss, 5.5);
  EXPECT_EQ(result->metrics,
            (std::vector<std::pair<std::string, double>>{{"first_loss", 3}, {"second_loss", 5}}));
}

TEST_F(StepTest, RejectsNamesOfNumbersThatMetricsFilesCannotHave) {
  TrainingStep step({.step = 1}, {batch({1})}, AccumulationMean::kSamples);
  for (const char* name :
       {"", "Seen", "a b", "loss", "lr", "mfu", "eval_loss", "eval_own", "step", "skipped"}) {
    EXPECT_THROW(step.log(name, at::ones({})), TrainError) << name;
  }
  EXPECT_NO_THROW(step.log("own_loss_2", at::ones({})));
}

}  // namespace
}  // namespace torchbridge::train
