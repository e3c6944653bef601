#include "trainer_template/runtime/checkpoint/snapshot.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint/safetensors.h"

namespace torchbridge::train {
namespace {

// More than 3 MiB, so that ranges begin and end within tensors; several types; one tensor is not
// contiguous.
NamedTensors example() {
  return {{"bytes", at::arange(700'001).to(at::kByte)},
          {"weight", at::randn({1000, 300})},
          {"transposed", at::randn({700, 500}).t()},
          {"scalar", at::scalar_tensor(7.0)},
          {"empty", at::zeros({0, 4})},
          {"half", at::randn({1001}).to(at::kHalf)}};
}

class SnapshotCopyModes : public testing::TestWithParam<Snapshot::CopyMode> {};

TEST_P(SnapshotCopyModes, WritersTogetherWriteTheFileOfOne) {
  TemporaryFolder folder;
  const NamedTensors tensors = example();
  write_safetensors(real_files(), folder / "whole", tensors, {{"format", "pt"}});
  for (const int count : {1, 2, 3, 5}) {
    const auto together = folder / std::to_string(count);
    for (int index = 0; index < count; ++index) {
      Snapshot snapshot;
      snapshot.add("file", tensors, index, count);
      snapshot.take(GetParam());
      snapshot.copy();
      write_shards(real_files(), together, snapshot.shards(), {});
    }
    EXPECT_TRUE(folder.read(std::to_string(count) + "/file") == folder.read("whole"))
        << count << " writers";
  }
}

INSTANTIATE_TEST_SUITE_P(Snapshot, SnapshotCopyModes,
                         testing::Values(Snapshot::CopyMode::kCopy,
                                         Snapshot::CopyMode::kReference));

TEST(Snapshot, ReusesItsMemory) {
  Snapshot snapshot;
  const char* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    snapshot.add("file", {{"weight", at::ones({100'000 - i}).mul(i)}});
    snapshot.take(Snapshot::CopyMode::kCopy);
    snapshot.copy();
    const auto& shard = snapshot.shards().at(0);
    ASSERT_EQ(shard.pieces.size(), 2u);  // header and tensor
    EXPECT_EQ(reinterpret_cast<const float*>(shard.pieces[1].data())[5], i);
    if (i == 0) first = shard.pieces[1].data();
    EXPECT_EQ(shard.pieces[1].data(), first);
    snapshot.clear();
  }
}

TEST(Snapshot, RefersToTensorsInHostMemory) {
  const at::Tensor weight = at::ones({1000});
  Snapshot snapshot;
  snapshot.add("file", {{"weight", weight}});
  snapshot.take(Snapshot::CopyMode::kReference);
  EXPECT_EQ(static_cast<const void*>(snapshot.shards()[0].pieces[1].data()),
            weight.const_data_ptr());
}

TEST(Snapshot, NamesATensorThatWasChangedBeforeItsCopy) {
  const NamedTensors tensors = {{"first", at::ones({1000})},
                                {"second", at::ones({1000}).set_requires_grad(true)}};
  Snapshot snapshot;
  snapshot.add("file", tensors);
  snapshot.take(Snapshot::CopyMode::kCopy);
  tensors[1].second.detach()[7].fill_(2);
  EXPECT_TRUE(contains(error_of([&] { snapshot.copy(); }),
                       "'second' was changed between the save and the optimizer's step"));
}

}  // namespace
}  // namespace torchbridge::train
