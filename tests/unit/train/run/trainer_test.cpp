// A step with a task of the test's own, by one rank.
#include <c10/core/GradMode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torchbridge/train/model_tensors.h>
#include <torchbridge/train/run/trainer.h>

#include <chrono>
#include <limits>
#include <thread>

#include "alone.h"
#include "temporary_folder.h"

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
    for (std::size_t i = 0; i < indices.size(); ++i) batch.inputs.mutable_data_ptr<float>()[i] = static_cast<float>(indices[i]);
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
    const bool bad = targets.eq(37).any().item<bool>();
    if (bad && with_bad_gradient) return (outputs * 0).sqrt().sum();
    return bad ? outputs.sum() * std::numeric_limits<float>::infinity() : outputs.mean();
  }
  std::vector<Metric> metrics() const override {
    Metric spread{.name = "spread", .size = 3, .sums = {}, .value = [](const at::Tensor& sums) {
                    const double samples = sums[2].item<double>(), mean = sums[0].item<double>() / samples;
                    return sums[1].item<double>() / samples - mean * mean;
                  }};
    spread.sums = [this](const at::Tensor& outputs, const at::Tensor&) {
      const at::Tensor sums = at::stack({outputs.sum(), outputs.square().sum(), at::full_like(outputs, 1).sum()});
      return with_bad_metric ? sums.slice(0, 1) : sums;
    };
    const auto largest = [](const at::Tensor& outputs, const at::Tensor&) { return outputs.max(); };
    return {mean_over_samples("largest", largest), spread};
  }
  bool with_bad_metric = false;
  bool with_bad_gradient = false;

 private:
  Indices indices_;
};

class TrainerTest : public testing::Test {
 protected:
  Trainer& trainer(TrainerOptions options) {
    trainer_.emplace(alone(), task_, *model_, ddp_, *optimizer_, std::move(options), Manifest{});
    return *trainer_;
  }
  Batch batch(std::vector<std::int64_t> indices) const { return task_.train_set().collate(indices); }
  float weight() const { return model_->weight.item<float>(); }

  Sum task_;
  std::shared_ptr<Weight> model_ = std::make_shared<Weight>();
  ModelTensors tensors_ = tensors_of(*model_);
  std::unique_ptr<Optimizer> optimizer_ = make_sgd(tensors_.parameters, {.lr = 0.1});
  DistributedDataParallel ddp_{tensors_, alone(), {}};
  std::optional<Trainer> trainer_;
};

TEST_F(TrainerTest, NamesTheSamplesOfALossThatIsNotFinite) {
  Trainer& stops = trainer({});
  stops.train_step(batch({1, 2}));
  const float before = weight();
  const Batch parts[] = {batch({3, 4}), batch({36, 37})};
  try {
    stops.train_step(parts);
    FAIL() << "nothing was thrown";
  } catch (const TrainError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("step 2: the loss is inf on 1 of 1 ranks"), std::string::npos) << text;
    EXPECT_NE(text.find("samples of this rank: 3 4 36 37;"), std::string::npos) << text;
  }
  EXPECT_EQ(weight(), before);
}

TEST_F(TrainerTest, LeavesSuchAStepOutWhenAsked) {
  Trainer& skips = trainer({.on_nan = OnNan::kSkip});
  const StepRecord skipped = skips.train_step(batch({37}));
  EXPECT_TRUE(skipped.skipped);
  EXPECT_EQ(weight(), 1.0f);
  EXPECT_EQ(skips.steps_done(), 1);
  const StepRecord taken = skips.train_step(batch({1, 3}));
  EXPECT_FALSE(taken.skipped);
  EXPECT_FLOAT_EQ(weight(), 1.0f - 0.1f * 2);
}

TEST_F(TrainerTest, LeavesNoTraceOfASkippedStepInBuffers) {
  Trainer& skips = trainer({.on_nan = OnNan::kSkip});
  skips.train_step(batch({1, 3}));
  const Batch parts[] = {batch({5}), batch({37})};
  EXPECT_TRUE(skips.train_step(parts).skipped);
  EXPECT_EQ(model_->seen.item<float>(), 4);
  skips.train_step(batch({2}));
  EXPECT_EQ(model_->seen.item<float>(), 6);
}

TEST_F(TrainerTest, SkipsWithLossScalingAndClippingToo) {
  Trainer& skips = trainer({.clip_norm = 1, .precision = at::kHalf, .on_nan = OnNan::kSkip});
  EXPECT_TRUE(skips.train_step(batch({37})).skipped);
  EXPECT_EQ(weight(), 1.0f);
  EXPECT_FALSE(skips.train_step(batch({1, 3})).skipped);
  EXPECT_NE(weight(), 1.0f);
}

TEST_F(TrainerTest, FindsAGradientThatIsNotFinite) {
  task_.with_bad_gradient = true;
  EXPECT_THROW(trainer({.grad_norm = true}).train_step(batch({37})), TrainError);
  EXPECT_EQ(weight(), 1.0f);
}

TEST_F(TrainerTest, FindsItAlsoWhereNoNormIsMeasured) {
  task_.with_bad_gradient = true;
  const std::string error = error_of([&] { trainer({}).train_step(batch({37})); });
  EXPECT_TRUE(contains(error, "step 1: a gradient is infinite or NaN (learning rate"));
  EXPECT_EQ(weight(), 1.0f);
  Trainer& skips = trainer({.on_nan = OnNan::kSkip});
  EXPECT_TRUE(skips.train_step(batch({37})).skipped);
  EXPECT_EQ(weight(), 1.0f);
  EXPECT_FALSE(skips.train_step(batch({1, 3})).skipped);
}

TEST_F(TrainerTest, EndsAfterStepsThatAreAllLeftOut) {
  for (const auto precision : {at::kFloat, at::kHalf}) {  // fp16: by the loss scaling
    task_.with_bad_gradient = precision == at::kHalf;
    Trainer& skips = trainer({.precision = precision, .on_nan = OnNan::kSkip, .max_skips = 3});
    for (const std::int64_t sample : {37, 37, 1, 37, 37}) {
      EXPECT_EQ(skips.train_step(batch({sample})).skipped, sample == 37);
    }
    const std::string error = error_of([&] { skips.train_step(batch({37})); });
    EXPECT_TRUE(contains(error, "step 6: the last 3 steps were left out"));
  }
}

TEST_F(TrainerTest, WeighsSamplesOrBatchesOfAnAccumulatedStep) {
  const Batch parts[] = {batch({1, 2, 3}), batch({7})};
  EXPECT_FLOAT_EQ(trainer({}).train_step(parts).loss, 13.0 / 4);
  EXPECT_FLOAT_EQ(weight(), 1.0f - 0.1f * 13 / 4);
  model_->weight.detach().fill_(1);
  EXPECT_FLOAT_EQ(trainer({.accumulation_mean = AccumulationMean::kBatches}).train_step(parts).loss, (2.0 + 7.0) / 2);
  EXPECT_FLOAT_EQ(weight(), 1.0f - 0.1f * 9 / 2);
}

TEST_F(TrainerTest, MeasuresTheGradientBeforeItIsClipped) {
  const StepRecord clipped = trainer({.clip_norm = 0.5}).train_step(batch({1, 3}));
  EXPECT_FLOAT_EQ(static_cast<float>(*clipped.grad_norm), 2.0f);
  EXPECT_NEAR(weight(), 1.0 - 0.1 * 0.5, 1e-6);
  EXPECT_FALSE(trainer({}).train_step(batch({1, 3})).grad_norm.has_value());
}

TEST_F(TrainerTest, AgreesToStop) {
  bool wanted = false;
  StopAgreement stop(alone(), {.wants_to_stop = [&] { return wanted; }});
  Trainer& asks = trainer({.stop = &stop});
  asks.train_step(batch({1}));
  EXPECT_FALSE(stop.agreed());
  wanted = true;
  asks.train_step(batch({1}));
  EXPECT_TRUE(stop.agreed());
}

TEST_F(TrainerTest, OwesAnEvaluationThatWasStopped) {
  bool wanted = true;
  StopAgreement stop(alone(), {.wants_to_stop = [&] { return wanted; }});
  Trainer& asks = trainer({.stop = &stop});
  EXPECT_FALSE(asks.evaluation_is_due());
  EXPECT_FALSE(asks.evaluate(task_.eval_set(), 1));
  EXPECT_TRUE(stop.agreed());
  EXPECT_TRUE(asks.progress().state.contains("evaluation.due")) << "a checkpoint holds it";
  wanted = false;
  EXPECT_TRUE(asks.evaluate(task_.eval_set(), 1));
  EXPECT_FALSE(asks.evaluation_is_due());
  EXPECT_FALSE(asks.progress().state.contains("evaluation.due"));
}

TEST_F(TrainerTest, CountsTheSecondsOfAllStarts) {
  const auto begin = std::chrono::steady_clock::now();
  Trainer goes_on(alone(), task_, *model_, ddp_, *optimizer_, {}, Manifest{.state = {{kRunSeconds, 1000.5}}});
  goes_on.train_step(batch({1}));
  const double first = run_seconds(goes_on.progress());
  const double second = run_seconds(goes_on.progress());
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(first, 1000.5);
  EXPECT_GE(second, first);
  EXPECT_LE(second, 1000.5 + passed.count()) << "what was added is not added again";
  EXPECT_LT(run_seconds(trainer({}).progress()), 1000.5) << "a training that begins anew has nothing of it";
}

TEST_F(TrainerTest, CountsNoEvaluationAsTrainingTime) {
  constexpr std::chrono::seconds kLong{1};
  TrainerOptions options;
  options.eval_forward = [&](const at::Tensor& inputs) {
    std::this_thread::sleep_for(kLong);
    return inputs;
  };
  Trainer& trained = trainer(options);
  trained.evaluate(task_.eval_set(), 100);
  EXPECT_GT(trained.train_step(batch({1})).samples_per_s, 1);
  EXPECT_GT(trained.samples_per_s(), 1);
}

TEST_F(TrainerTest, EvaluatesLossAndMetricsOverAllSamples) {
  {
    const at::NoGradGuard no_grad;
    model_->weight.fill_(2);
  }
  const Evaluation result = *trainer({}).evaluate(task_.eval_set(), 100);
  EXPECT_TRUE(std::isinf(result.loss));  // sample 37 is there
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[0].first, "largest");
  EXPECT_EQ(result.metrics[0].second, 198);
}

// The variance of 0, 1 ... 99 is no mean of those of its batches.
TEST_F(TrainerTest, AMetricIsMadeOfTheSumsOverAllBatches) {
  for (std::int64_t batch_size : {7, 100}) {
    const Evaluation result = *trainer({}).evaluate(task_.eval_set(), batch_size);
    EXPECT_EQ(result.metrics.at(1), (std::pair<std::string, double>("spread", 833.25))) << batch_size;
  }
}

TEST_F(TrainerTest, AMetricOfAnotherSizeThanItTellsIsNamed) {
  task_.with_bad_metric = true;
  try {
    trainer({}).evaluate(task_.eval_set(), 100);
    FAIL() << "nothing was thrown";
  } catch (const TrainError& error) {
    EXPECT_STREQ(error.what(), "metric 'spread': sums() gives 2 numbers, and its size is 3");
  }
}

}  // namespace
}  // namespace torchbridge::train
