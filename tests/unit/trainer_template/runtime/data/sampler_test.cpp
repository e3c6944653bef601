#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>
#include <torchbridge/sampler.h>

namespace torchbridge::train {
namespace {

using Indices = std::vector<std::int64_t>;

Indices in_order(std::int64_t size) {
  Indices order(size);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The samples of a rank in an epoch in the order 0, 1, 2 ...
Indices shard_of(const SamplerOptions& options, std::int64_t consumed = 0) {
  Indices shard(samples_per_rank(options, consumed));
  for (std::int64_t nth = 0; nth < std::ssize(shard); ++nth)
    shard[nth] = rank_position(options, consumed, nth);
  return shard;
}

TEST(Sampler, TakesEveryWorldSizethSample) {
  // Python's results without shuffle; tests/process compares the others with Python itself.
  const struct {
    std::int64_t size;
    int world_size, rank;
    bool drop_last;
    std::int64_t consumed;
    Indices expected;
  } kCases[] = {
      {8, 4, 1, false, 0, {1, 5}},
      {10, 4, 0, false, 0, {0, 4, 8}},
      {10, 4, 2, false, 0, {2, 6, 0}},
      {10, 4, 3, false, 0, {3, 7, 1}},
      {10, 4, 3, true, 0, {3, 7}},
      {2, 5, 4, false, 0, {0}},
      {1, 4, 3, false, 0, {0}},
      {3, 5, 0, true, 0, {}},
      {7, 1, 0, false, 0, {0, 1, 2, 3, 4, 5, 6}},
      {10, 4, 2, false, 4, {6, 0}},
      {10, 4, 2, true, 4, {6}},
      {10, 4, 2, false, 12, {}},
      {10, 2, 1, false, 4, {5, 7, 9}},
      {10, 3, 1, false, 4, {5, 8}},
  };
  for (const auto& c : kCases) {
    const SamplerOptions options{
        .size = c.size, .world_size = c.world_size, .rank = c.rank, .drop_last = c.drop_last};
    const Indices shard = shard_of(options, c.consumed);
    EXPECT_EQ(shard, c.expected) << c.size << " samples, rank " << c.rank << " of " << c.world_size
                                 << ", drop_last " << c.drop_last << ", consumed " << c.consumed;
    EXPECT_EQ(samples_per_rank(options, c.consumed), std::ssize(c.expected));
  }
}

TEST(Sampler, EveryRankGetsTheSameNumber) {
  for (std::int64_t size : {1, 2, 7, 8, 9, 100}) {
    for (int world_size : {1, 2, 3, 16}) {
      for (bool drop_last : {false, true}) {
        SamplerOptions options{.size = size, .world_size = world_size, .drop_last = drop_last};
        const auto first = shard_of(options).size();
        options.rank = world_size - 1;
        EXPECT_EQ(shard_of(options).size(), first) << size << " on " << world_size;
      }
    }
  }
}

TEST(Sampler, ResumesAtAnotherWorldSizeWithTheSamplesLeft) {
  constexpr std::int64_t kSize = 101, kConsumed = 48;
  for (int world_size : {1, 2, 3, 5}) {
    std::set<std::int64_t> seen;
    for (int rank = 0; rank < world_size; ++rank) {
      const SamplerOptions options{.size = kSize, .world_size = world_size, .rank = rank};
      for (std::int64_t index : shard_of(options, kConsumed)) seen.insert(index);
    }
    for (std::int64_t index = kConsumed; index < kSize; ++index) {
      EXPECT_TRUE(seen.contains(index)) << index << " on " << world_size;
    }
  }
}

TEST(Sampler, EvaluationTakesEachSampleOnce) {
  for (int world_size : {1, 2, 3, 7}) {
    Indices all;
    for (int rank = 0; rank < world_size; ++rank) {
      const SamplerOptions options{
          .size = 5, .world_size = world_size, .rank = rank, .allow_uneven_shards = true};
      for (std::int64_t nth = 0; nth < samples_per_rank(options); ++nth)
        all.push_back(rank_position(options, 0, nth));
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, in_order(5)) << world_size;
  }
}

}  // namespace
}  // namespace torchbridge::train
