#include "trainer_template/runtime/data/keyed_permutation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

using Counts = std::vector<std::int64_t>;

// How far the counts are from equal ones, in standard deviations of chi-square, which is nearly
// normal for so many cells.
double deviation(const Counts& counts) {
  const double expected =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})) /
      std::ssize(counts);
  double chi_square = 0;
  for (const auto count : counts) chi_square += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(std::ssize(counts)) - 1;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

// All seeds are fixed: a test that passes once passes always. Beyond 4 only 1 in 30,000 would be.
constexpr double kUniform = 4;

TEST(KeyedPermutation, GivesEachIndexOnce) {
  std::vector<std::int64_t> sizes(130);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {255, 256, 257, 1437, 4095, 4096, 60000, 65537, 262143});
  for (const std::int64_t size : sizes) {
    const KeyedPermutation order(size, 7, size);
    std::vector<bool> seen(size);
    for (std::int64_t position = 0; position < size; ++position) {
      const std::int64_t index = order[position];
      ASSERT_TRUE(index >= 0 && index < size) << size << " at " << position;
      ASSERT_FALSE(seen[index]) << index << " twice of " << size;
      seen[index] = true;
    }
  }
}

TEST(KeyedPermutation, TakesDataSetsOfAnySize) {
  for (const std::int64_t size :
       {std::int64_t{1'000'000'000}, std::int64_t{1} << 40, std::int64_t{1} << 62}) {
    const KeyedPermutation order(size, 1, 0);
    for (const std::int64_t position : {std::int64_t{0}, size / 2, size - 1}) {
      EXPECT_TRUE(order[position] >= 0 && order[position] < size) << size;
    }
    EXPECT_NE(order[0], order[1]);
  }
}

// The orders must not change, or a run would resume in another order after an update.
TEST(KeyedPermutation, StaysTheSame) {
  const KeyedPermutation order(1'000'000'000, 42, 3);
  const std::vector<std::int64_t> first = {order[0], order[1], order[2], order[999'999'999]};
  EXPECT_EQ(first, (std::vector<std::int64_t>{178590883, 554678751, 436369163, 7244819}));
}

TEST(KeyedPermutation, EachSeedAndEpochHasItsOwn) {
  std::map<std::int64_t, int> seen;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    for (std::int64_t epoch = 0; epoch < 32; ++epoch)
      ++seen[KeyedPermutation(1'000'000'000'000'000, seed, epoch)[0]];
  }
  EXPECT_EQ(seen.size(), 32u * 32u);
}

// All size! orders of a few samples, over consecutive keys.
TEST(KeyedPermutation, EveryOrderOfAFewSamplesIsAsLikely) {
  for (const std::int64_t size : {2, 3, 4, 5}) {
    std::vector<std::int64_t> samples(size);
    std::iota(samples.begin(), samples.end(), 0);
    std::map<std::vector<std::int64_t>, std::int64_t> found;
    do found[samples] = 0;
    while (std::next_permutation(samples.begin(), samples.end()));
    for (std::int64_t key = 0; key < 6000; ++key) {
      const KeyedPermutation order(size, 5, key);
      for (std::int64_t position = 0; position < size; ++position)
        samples[position] = order[position];
      ++found.at(samples);
    }
    Counts counts;
    for (const auto& [_, count] : found) counts.push_back(count);
    EXPECT_LT(deviation(counts), kUniform) << size;
  }
}

using IndexOf = std::function<std::int64_t(std::int64_t position, std::int64_t key)>;

// Which index each position gets, over many keys.
double positions_deviate(const IndexOf& order, std::int64_t size, std::int64_t keys) {
  Counts counts(size * size);
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t position = 0; position < size; ++position)
      ++counts[position * size + order(position, key)];
  }
  return deviation(counts);
}

// Which two indices follow each other, over many keys: all ordered pairs of different ones.
double pairs_deviate(const IndexOf& order, std::int64_t size, std::int64_t keys) {
  Counts counts(size * (size - 1));
  for (std::int64_t key = 0; key < keys; ++key) {
    for (std::int64_t position = 0; position + 1 < size; ++position) {
      const std::int64_t first = order(position, key), second = order(position + 1, key);
      ++counts[first * (size - 1) + (second > first ? second - 1 : second)];
    }
  }
  return deviation(counts);
}

// Of one order of 10^9: where in 0 .. size-1 an index and the one after it lie, in 64 by 64 parts.
double neighbours_deviate(const IndexOf& order, std::int64_t size, std::int64_t positions) {
  constexpr std::int64_t kParts = 64;
  Counts counts(kParts * kParts);
  for (std::int64_t position = 0; position < positions; ++position) {
    const std::int64_t part = order(position, 0) * kParts / size,
                       next = order(position + 1, 0) * kParts / size;
    ++counts[part * kParts + next];
  }
  return deviation(counts);
}

// How far an index is from the one before it, on the ring, in 256 parts.
double distances_deviate(const IndexOf& order, std::int64_t size, std::int64_t positions) {
  constexpr std::int64_t kParts = 256;
  Counts counts(kParts);
  for (std::int64_t position = 0; position < positions; ++position) {
    const std::int64_t distance = (order(position + 1, 0) - order(position, 0) + size) % size;
    ++counts[distance * kParts / size];
  }
  return deviation(counts);
}

constexpr std::int64_t kLarge = 1'000'000'000;

TEST(KeyedPermutation, IndicesArePlacedUniformly) {
  for (const std::int64_t size : {7, 32, 61}) {
    std::vector<KeyedPermutation> orders;
    for (std::int64_t key = 0; key < 3000; ++key) orders.emplace_back(size, 11, key);
    const IndexOf order = [&](std::int64_t position, std::int64_t key) {
      return orders[key][position];
    };
    EXPECT_LT(positions_deviate(order, size, std::ssize(orders)), kUniform) << size;
    EXPECT_LT(pairs_deviate(order, size, std::ssize(orders)), kUniform) << size;
  }
}

TEST(KeyedPermutation, NeighboursOfALargeOrderAreIndependent) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const KeyedPermutation permutation(kLarge, seed, 0);
    const IndexOf order = [&](std::int64_t position, std::int64_t) {
      return permutation[position];
    };
    EXPECT_LT(neighbours_deviate(order, kLarge, 100'000), kUniform) << seed;
    EXPECT_LT(distances_deviate(order, kLarge, 100'000), kUniform) << seed;
  }
}

// A random order leaves one sample at its position on average, with variance 1.
TEST(KeyedPermutation, AsManySamplesStayInPlaceAsByChance) {
  constexpr std::int64_t kKeys = 2000, kSize = 200;
  std::int64_t fixed = 0;
  for (std::int64_t key = 0; key < kKeys; ++key) {
    const KeyedPermutation order(kSize, 3, key);
    for (std::int64_t position = 0; position < kSize; ++position)
      fixed += order[position] == position;
  }
  EXPECT_LT(std::abs(fixed - kKeys), kUniform * std::sqrt(kKeys));
}

// That the measures above can fail: orders that only look mixed.
TEST(KeyedPermutation, TheMeasuresFindWeakOrders) {
  const auto linear = [](std::int64_t size) {
    return [size](std::int64_t position, std::int64_t key) {
      return (position * 382'549 + key * 7'919) % size;
    };
  };
  EXPECT_LT(positions_deviate(linear(61), 61, 61 * 50), kUniform)
      << "each position gets each index, one by one";
  EXPECT_GT(pairs_deviate(linear(61), 61, 61 * 50), 100);
  EXPECT_GT(neighbours_deviate(linear(kLarge), kLarge, 100'000), 100);
  EXPECT_GT(distances_deviate(linear(kLarge), kLarge, 100'000), 100);
  const IndexOf sequential = [](std::int64_t position, std::int64_t) { return position; };
  EXPECT_GT(positions_deviate(sequential, 61, 100), 100);
}

}  // namespace
}  // namespace torchbridge::train
