#include <ATen/ops/empty.h>
#include <torchbridge/train/loader.h>

#include <chrono>
#include <thread>

#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

// Sample i has input and target i. One sample may be one that cannot be read.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t bad = -1) : size_(size), bad_(bad) {}
  std::int64_t size() const override { return size_; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    Batch batch;
    batch.targets = at::empty({std::ssize(indices)}, at::kLong);
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      if (indices[i] == bad_) throw std::runtime_error("sample " + std::to_string(bad_) + " cannot be read");
      batch.targets.mutable_data_ptr<std::int64_t>()[i] = indices[i];
    }
    batch.inputs = batch.targets;
    return batch;
  }

 private:
  std::int64_t size_, bad_;
};

std::vector<std::int64_t> values(const Batch& batch) {
  const auto* first = batch.targets.const_data_ptr<std::int64_t>();
  return {first, first + batch.samples()};
}

using Batches = std::vector<std::vector<std::int64_t>>;

Batches all_of(Loader& loader) {
  Batches batches;
  while (const auto batch = loader.next()) batches.push_back(values(*batch));
  return batches;
}

constexpr int kWorkerCounts[] = {0, 1, 3};

TEST(Loader, GivesTheBatchesInOrder) {
  const Numbers numbers(7);
  for (int workers : kWorkerCounts) {
    Loader loader(numbers, {.size = 7, .shuffle = false}, {.batch_size = 3, .workers = workers, .epochs = 2});
    EXPECT_EQ(all_of(loader), (Batches{{0, 1, 2}, {3, 4, 5}, {6}, {0, 1, 2}, {3, 4, 5}, {6}})) << workers;
    EXPECT_FALSE(loader.next());
  }
}

TEST(Loader, ShufflesEachEpochAnew) {
  const Numbers numbers(50);
  Loader loader(numbers, {.size = 50}, {.batch_size = 50, .epochs = 2});
  const Batches batches = all_of(loader);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_NE(batches[0], batches[1]);
}

TEST(Loader, GoesOnFromEveryPosition) {
  const Numbers numbers(23);
  for (int world_size : {1, 2, 3}) {
    for (int workers : kWorkerCounts) {
      const SamplerOptions sampler{.size = 23, .world_size = world_size, .rank = world_size - 1, .seed = 5};
      const LoaderOptions options{.batch_size = 4, .workers = workers, .epochs = 3};
      Loader whole(numbers, sampler, options);
      std::vector<SamplerPosition> positions = {{}};
      Batches expected;
      while (const auto batch = whole.next()) {
        expected.push_back(values(*batch));
        positions.push_back(batch->next);
      }
      for (std::size_t done = 0; done <= expected.size(); ++done) {
        EXPECT_EQ(batches_left(sampler, options, positions[done]), std::ssize(expected) - std::ssize(positions) + 1 +
                      std::ssize(expected) - static_cast<std::ptrdiff_t>(done));
        Loader rest(numbers, sampler, options, positions[done]);
        EXPECT_EQ(all_of(rest), Batches(expected.begin() + static_cast<std::ptrdiff_t>(done), expected.end()))
            << world_size << " ranks, " << workers << " workers, after " << done;
      }
    }
  }
}

TEST(Loader, StopsAtTheLimit) {
  const Numbers numbers(10);
  for (int workers : kWorkerCounts) {
    for (std::int64_t limit : {0, 1, 7}) {
      Loader loader(numbers, {.size = 10}, {.batch_size = 2, .workers = workers, .epochs = 9, .max_batches = limit});
      EXPECT_EQ(std::ssize(all_of(loader)), limit) << workers;
    }
  }
}

TEST(Loader, HandsErrorsToTheCaller) {
  const Numbers numbers(10, 5);
  for (int workers : kWorkerCounts) {
    Loader loader(numbers, {.size = 10, .shuffle = false}, {.batch_size = 2, .workers = workers});
    EXPECT_TRUE(loader.next());
    EXPECT_TRUE(loader.next());
    EXPECT_EQ(error_of([&] { loader.next(); }), "sample 5 cannot be read") << workers;
    EXPECT_TRUE(loader.next());
  }
}

TEST(Loader, StopsInTheMiddle) {
  const Numbers numbers(1000);
  for (int workers : kWorkerCounts) {
    for (int taken : {0, 1, 5}) {
      Loader loader(numbers, {.size = 1000}, {.batch_size = 1, .workers = workers, .batches_ahead = 2});
      for (int i = 0; i < taken; ++i) EXPECT_TRUE(loader.next());
    }
  }
}

TEST(Loader, RefusesADataSetThatIsTooSmall) {
  const Numbers numbers(3);
  const SamplerOptions sampler{.size = 3, .world_size = 4, .drop_last = true};
  EXPECT_TRUE(contains(error_of([&] { Loader(numbers, sampler, {}); }), "3 samples, too few for 4 ranks"));
}

}  // namespace
}  // namespace torchbridge::train
