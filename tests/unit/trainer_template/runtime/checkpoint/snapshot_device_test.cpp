// Saving tensors of a device, with a fake device that orders its work in streams like a GPU.
#include <algorithm>
#include <cstring>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/optimizer.h>

#include "tests/support/alone.h"
#include "tests/support/fake_device.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint/safetensors.h"
#include "trainer_template/runtime/checkpoint/snapshot.h"

namespace torchbridge::train {
namespace {

void write(const at::Tensor& on_device, float value) {
  std::fill_n(static_cast<float*>(on_device.data_ptr()), on_device.numel(), value);
}

at::Tensor on_device(std::int64_t size, float value) {
  const at::Tensor tensor =
      at::empty({size}, at::TensorOptions(at::kFloat).device(fake_device::kDevice));
  write(tensor, value);
  return tensor;
}

std::vector<float> values(std::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(DeviceSnapshot, IsCopiedOnASeparateStream) {
  const NamedTensors tensors = {{"first", on_device(5, 1)},
                                {"second", on_device(3, 2)},
                                {"third", at::arange(2, at::kFloat)}};
  Snapshot snapshot;
  for (int save = 0; save < 2; ++save) {
    fake_device::forget();
    snapshot.add("file", tensors);
    const int waited = fake_device::waits().of_the_thread;
    snapshot.take(Snapshot::CopyMode::kCopy);
    EXPECT_EQ(fake_device::waiting(), 2u) << "the call has waited for a copy";
    EXPECT_EQ(fake_device::waits().of_the_thread, waited);
    ASSERT_TRUE(snapshot.copied());
    snapshot.copy();
    EXPECT_EQ(fake_device::waiting(), 2u);
    const auto copies = fake_device::copies();
    ASSERT_EQ(copies.size(), 2u);
    EXPECT_NE(copies[0].stream, 0) << "the training stream would wait for it";
    EXPECT_EQ(copies[0].stream, copies[1].stream);
    EXPECT_TRUE(copies[0].pinned && copies[1].pinned);
    snapshot.wait();
    EXPECT_EQ(fake_device::waiting(), 0u);
    const auto& pieces = snapshot.shards().at(0).pieces;
    ASSERT_EQ(pieces.size(), 4u);  // the header first
    EXPECT_EQ(values(pieces[1]), std::vector<float>(5, 1));
    EXPECT_EQ(values(pieces[2]), std::vector<float>(3, 2));
    EXPECT_EQ(values(pieces[3]), (std::vector<float>{0, 1}));
    snapshot.clear();
    EXPECT_FALSE(snapshot.copied());
  }
}

// The stream of the optimizer waits, its thread does not. Later writes are not in the checkpoint.
TEST(DeviceSnapshot, TheOptimizersStreamWaitsForAnAsynchronousSave) {
  TemporaryFolder folder;
  fake_device::forget();
  const ModelTensors model{.parameters = {{"weight", on_device(1000, 1)}},
                           .buffers = {{"mean", on_device(10, 2)}}};
  const auto optimizer = make_sgd(NamedTensors{}, {});
  Checkpoints checkpoints(alone(), {.folder = folder / "runs", .async = true});
  checkpoints.save({.step = 1}, model, *optimizer);
  const fake_device::Waits before = fake_device::waits();
  optimizer->step();
  EXPECT_EQ(fake_device::waits().of_streams, before.of_streams + 1);
  EXPECT_EQ(fake_device::waits().of_the_thread, before.of_the_thread);
  write(model.parameters[0].second, 7);
  write(model.buffers[0].second, 7);
  checkpoints.finish();
  for (const auto& [name, tensor] :
       read_safetensors(checkpoints.last_saved() / "model.safetensors")) {
    EXPECT_EQ(tensor.min().item<float>(), name == "weight" ? 1 : 2) << name;
    EXPECT_EQ(tensor.max().item<float>(), name == "weight" ? 1 : 2) << name;
  }
}

TEST(DeviceSnapshot, ABrokenDeviceIsAnErrorThatUnwindsToItsHandler) {
  fake_device::forget();
  const NamedTensors tensors = {{"weight", on_device(5, 1)}};
  const auto save = [&] {
    Snapshot snapshot;
    snapshot.add("file", tensors);
    snapshot.take(Snapshot::CopyMode::kCopy);
    fake_device::set_broken(true);
    snapshot.wait();
  };
  EXPECT_THROW(save(), c10::AcceleratorError);
  fake_device::forget();
  fake_device::set_broken(false);
}

}  // namespace
}  // namespace torchbridge::train
