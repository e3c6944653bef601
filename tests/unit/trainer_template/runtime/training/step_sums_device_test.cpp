// Reading the numbers of steps from a device, on one that behaves as a GPU does where order
// matters.
#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torchbridge/ddp.h>
#include <torchbridge/errors.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/task.h>
#include <torchbridge/training_step.h>

#include "tests/support/alone.h"
#include "tests/support/fake_device.h"
#include "trainer_template/runtime/training/step_sums.h"

namespace torchbridge::train {
namespace {

// Six numbers, as reduce_step() gives them without a norm.
StepSums sums_of(double loss) {
  StepSums sums{
      .found_inf = {},
      .numbers = at::empty({6}, at::TensorOptions(at::kDouble).device(fake_device::kDevice))};
  auto* numbers = static_cast<double*>(sums.numbers.data_ptr());
  std::fill_n(numbers, 6, 0.0);
  numbers[0] = numbers[5] = loss;
  return sums;
}

TEST(DeviceSteps, AreReadAStepLater) {
  fake_device::forget();
  const int waited = fake_device::waits().of_the_thread;
  StepReader reader(fake_device::kDevice, 1);
  reader.add({.step = 1}, {}, sums_of(0.5));
  EXPECT_EQ(fake_device::waiting(), 1u) << "the copy was waited for";
  EXPECT_TRUE(reader.read().empty());
  EXPECT_EQ(fake_device::waits().of_the_thread, waited);
  reader.add({.step = 2}, {}, sums_of(0.25));
  const auto first = reader.read();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].record.step, 1);
  EXPECT_EQ(first[0].record.loss, 0.5);
  EXPECT_EQ(fake_device::waiting(), 1u) << "the step after it was waited for too";
  for (const auto& copy : fake_device::copies()) EXPECT_TRUE(copy.pinned);
  const auto last = reader.read(/*all=*/true);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].record.loss, 0.25);
  EXPECT_EQ(fake_device::waiting(), 0u);
}

// As cuBLAS, which reports the assertion of an earlier kernel as an error of its own call.
class FailingLibrary : public Model {
 public:
  FailingLibrary() { weight_ = register_parameter("weight", at::ones({1})); }
  Outputs forward_batch(const Batch&) override {
    TORCH_CHECK(false, "CUBLAS_STATUS_EXECUTION_FAILED");
  }

 private:
  at::Tensor weight_;
};

class NoData : public Dataset {
  std::int64_t size() const override { return 1; }
  Batch collate(std::span<const std::int64_t>) const override { return {}; }
};

class AnyTask : public Task {
 public:
  const Dataset& train_set() const override { return data_; }
  const Dataset& eval_set() const override { return data_; }
  std::shared_ptr<Model> make_model() const override { return std::make_shared<FailingLibrary>(); }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor&) const override { return outputs; }

 private:
  NoData data_;
};

TEST(DeviceSteps, AnErrorOfALibraryIsThatOfTheBatchOnlyWhereTheDeviceIsNotBroken) {
  fake_device::forget();
  FailingLibrary model;
  DistributedDataParallel ddp(tensors_of(model), alone(), {});
  Batch batch;
  batch.inputs = at::empty({2}, at::TensorOptions(at::kFloat).device(fake_device::kDevice));
  TrainingStep step({.step = 1}, {batch}, AccumulationMean::kSamples);
  const auto loss = [&] { forward_loss(ddp, model, AnyTask(), batch, step); };
  EXPECT_THROW(loss(), TrainError);
  fake_device::set_broken(true);
  EXPECT_THROW(loss(), c10::AcceleratorError);
  fake_device::set_broken(false);
}

TEST(DeviceSteps, ABrokenDeviceIsAnErrorThatUnwindsToItsHandler) {
  fake_device::forget();
  const auto train = [] {
    StepReader reader(fake_device::kDevice, 1);
    reader.add({.step = 1}, {}, sums_of(0.5));
    fake_device::set_broken(true);
    reader.read(/*all=*/true);
  };
  EXPECT_THROW(train(), c10::AcceleratorError);
  fake_device::forget();
  fake_device::set_broken(false);
}

}  // namespace
}  // namespace torchbridge::train
