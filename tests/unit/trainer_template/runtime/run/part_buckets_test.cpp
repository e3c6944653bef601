#include "trainer_template/runtime/run/part_buckets.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "tests/support/alone.h"

namespace torchbridge::train {
namespace {

NamedTensors parameters(const std::vector<std::string>& names) {
  NamedTensors tensors;
  for (const auto& name : names) tensors.emplace_back(name, at::ones({1}).set_requires_grad(true));
  return tensors;
}

const ModelTensors kModel{.parameters = parameters({"a.x", "b.x", "a.y", "b.y", "b.z"})},
    kA{.parameters = parameters({"a.x", "a.y"})},
    kB{.parameters = parameters({"b.x", "b.y", "b.z"})};

TEST(PartBuckets, EachPartGetsItsOwnBack) {
  // With one rank a DDP keeps the buckets that it was given.
  DistributedDataParallel a(kA, alone(), {.buckets = {{1}, {0}}});
  DistributedDataParallel b(kB, alone(), {.buckets = {{2, 0}, {1}}});
  const BucketLayout whole = buckets_of({a, b}, kModel);
  EXPECT_EQ(whole, (BucketLayout{{2}, {0}, {4, 1}, {3}}));
  EXPECT_EQ(buckets_of_part(whole, kModel, kA), (BucketLayout{{1}, {0}}));
  EXPECT_EQ(buckets_of_part(whole, kModel, kB), (BucketLayout{{2, 0}, {1}}));
}

TEST(PartBuckets, OneDdpKeepsItsOwn) {
  DistributedDataParallel a(kA, alone(), {.buckets = {{1}, {0}}});
  EXPECT_EQ(buckets_of({a}, kModel), (BucketLayout{{1}, {0}}));
}

TEST(PartBuckets, NoneFitAPartOfWhichTheyAreNot) {
  const BucketLayout kLayouts[] = {{}, {{0, 1}, {2, 3, 4}}, {{0}, {1}}};
  for (const BucketLayout& layout : kLayouts) {
    EXPECT_EQ(buckets_of_part(layout, kModel, kA), BucketLayout()) << layout.size();
  }
}

}  // namespace
}  // namespace torchbridge::train
