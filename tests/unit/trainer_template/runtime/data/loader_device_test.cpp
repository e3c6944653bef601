// Loading onto a device, on one that behaves as a GPU does where order matters.
#include <algorithm>
#include <cstring>
#include <set>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torchbridge/data.h>

#include "tests/support/fake_device.h"
#include "trainer_template/runtime/data/device_copy.h"
#include "trainer_template/runtime/data/pinned_batches.h"

namespace torchbridge::train {
namespace {

// Sample i has input i, target 2i, and 3i by the name of "other".
class Numbers : public Dataset {
 public:
  std::int64_t size() const override { return 12; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    Batch batch;
    batch.inputs = batch_tensor({std::ssize(indices)}, at::kLong);
    batch.targets = batch_tensor({std::ssize(indices)}, at::kLong);
    batch.named["other"] = batch_tensor({std::ssize(indices)}, at::kLong);
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      batch.inputs.mutable_data_ptr<std::int64_t>()[i] = indices[i];
      batch.targets.mutable_data_ptr<std::int64_t>()[i] = 2 * indices[i];
      batch.named["other"].mutable_data_ptr<std::int64_t>()[i] = 3 * indices[i];
    }
    return batch;
  }
};

// What is in the device's memory now.
std::vector<std::int64_t> values(const at::Tensor& tensor) {
  std::vector<std::int64_t> values(tensor.numel());
  std::memcpy(values.data(), tensor.const_data_ptr(), tensor.nbytes());
  return values;
}

TEST(DeviceLoader, BatchesAreWholeWhenTheTrainingStreamHasThem) {
  const Numbers numbers;
  for (const int workers : {0, 1, 2}) {
    fake_device::forget();
    Loader loader(numbers, {.size = 12, .order = Order::kSequential},
                  {.batch_size = 5, .workers = workers, .device = fake_device::kDevice});
    std::vector<std::int64_t> inputs, targets, others;
    while (const auto batch = loader.next()) {
      EXPECT_EQ(batch->inputs.device(), fake_device::kDevice);
      for (const auto value : values(batch->inputs)) inputs.push_back(value);
      for (const auto value : values(batch->targets)) targets.push_back(value);
      EXPECT_EQ((*batch)["other"].device(), fake_device::kDevice);
      for (const auto value : values((*batch)["other"])) others.push_back(value);
    }
    EXPECT_EQ(inputs, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})) << workers;
    EXPECT_EQ(targets, (std::vector<std::int64_t>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}))
        << workers;
    EXPECT_EQ(others, (std::vector<std::int64_t>{0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33}))
        << workers;
  }
}

TEST(DeviceLoader, CopiesFromPinnedMemoryOnStreamsOfTheWorkers) {
  const Numbers numbers;
  fake_device::forget();
  Loader loader(numbers, {.size = 12},
                {.batch_size = 3, .workers = 2, .device = fake_device::kDevice});
  while (loader.next()) {
  }
  const auto copies = fake_device::copies();
  EXPECT_EQ(copies.size(), 12u) << "three tensors of four batches";
  std::set<c10::StreamId> streams;
  for (const auto& copy : copies) {
    EXPECT_TRUE(copy.pinned);
    EXPECT_NE(copy.stream, 0) << "the training stream would wait for it";
    streams.insert(copy.stream);
  }
  EXPECT_LE(streams.size(), 2u);
  const auto recorded = fake_device::recorded_streams();
  EXPECT_EQ(recorded, std::vector<c10::StreamId>(12, 0)) << "the training stream uses all tensors";
  EXPECT_EQ(fake_device::waiting(), 0u);
}

// Also that the test above can fail: without finish() the device's memory is not filled.
TEST(DeviceLoader, BeginningACopyDoesNotWait) {
  fake_device::forget();
  const Numbers numbers;
  const std::vector<std::int64_t> indices = {3, 4};
  const DeviceCopy copy(fake_device::kDevice);
  std::optional<DeviceCopy::CopyingBatch> copying;
  {
    const PinnedBatches pinned(true);
    copying = copy.begin(numbers.collate(indices));
  }
  EXPECT_EQ(fake_device::waiting(), 3u);
  EXPECT_EQ(values(copying->batch.inputs), (std::vector<std::int64_t>{0, 0}));
  const Batch batch = DeviceCopy::finish(*std::move(copying));
  EXPECT_EQ(fake_device::waiting(), 0u);
  EXPECT_EQ(values(batch.inputs), indices);
}

TEST(DeviceLoader, OrdinaryMemoryIsCopiedToo) {
  const Numbers numbers;
  const std::vector<std::int64_t> indices = {3, 4};
  const Batch batch =
      DeviceCopy::finish(DeviceCopy(fake_device::kDevice).begin(numbers.collate(indices)));
  EXPECT_EQ(values(batch.inputs), indices);
}

TEST(DeviceLoader, UsesPageableMemoryWhereNoPinnedIsLeft) {
  const Numbers numbers;
  fake_device::forget();
  fake_device::reject_pinned_memory(true);
  testing::internal::CaptureStderr();
  std::vector<std::int64_t> inputs;
  {
    Loader loader(numbers, {.size = 12, .order = Order::kSequential},
                  {.batch_size = 5, .workers = 1, .device = fake_device::kDevice});
    while (const auto batch = loader.next()) {
      for (const auto value : values(batch->inputs)) inputs.push_back(value);
    }
  }
  fake_device::reject_pinned_memory(false);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "device_test: no pinned memory (out of locked memory): "
            "copies between GPU and CPU use pageable memory, which is slower\n");
  EXPECT_EQ(inputs, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  for (const auto& copy : fake_device::copies()) EXPECT_FALSE(copy.pinned);
}

// While batches are in all states: delivered, made ahead, and on their way.
TEST(DeviceLoader, ABrokenDeviceIsAnErrorThatUnwindsToItsHandler) {
  const Numbers numbers;
  for (const int workers : {0, 2}) {
    fake_device::forget();
    testing::internal::CaptureStderr();
    const auto train = [&] {
      Loader loader(numbers, {.size = 12},
                    {.batch_size = 3, .workers = workers, .device = fake_device::kDevice});
      const auto batch = loader.next();
      fake_device::set_broken(true);
      while (loader.next()) {
      }
    };
    EXPECT_THROW(train(), c10::AcceleratorError) << workers;
    fake_device::forget();
    fake_device::set_broken(false);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

TEST(DeviceLoader, AMissingDeviceIsAnErrorInTheCaller) {
  const Numbers numbers;
  Loader loader(numbers, {.size = 12}, {.device = c10::Device(c10::DeviceType::XPU, 0)});
  EXPECT_THROW(loader.next(), std::exception);
}

}  // namespace
}  // namespace torchbridge::train
