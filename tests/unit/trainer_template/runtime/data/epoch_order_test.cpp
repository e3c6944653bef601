#include "trainer_template/runtime/data/epoch_order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

std::vector<std::int64_t> whole(const SamplerOptions& options, std::int64_t epoch) {
  return rank_shard(options, EpochOrder(options, epoch), 0, 0, options.size);
}

// tests/process compares with Python itself.
TEST(EpochOrder, ShuffledIsRandpermOfSeedAndEpoch) {
  const at::Tensor expected =
      at::randperm(5000, at::detail::createCPUGenerator(10), at::TensorOptions(at::kLong));
  const auto* first = expected.const_data_ptr<std::int64_t>();
  EXPECT_EQ(whole({.size = 5000, .seed = 7}, 3), std::vector<std::int64_t>(first, first + 5000));
}

TEST(EpochOrder, PermutedIsTheKeyedPermutation) {
  const KeyedPermutation expected(500, 7, 3);
  const auto order = whole({.size = 500, .seed = 7, .order = Order::kPermuted}, 3);
  for (std::int64_t position = 0; position < 500; ++position)
    EXPECT_EQ(order[position], expected[position]);
}

TEST(EpochOrder, SequentialIsTheSameInEveryEpoch) {
  EXPECT_EQ(whole({.size = 4, .seed = 7, .order = Order::kSequential}, 3),
            (std::vector<std::int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace torchbridge::train
