#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <torchbridge/data.h>
#include <torchbridge/skipped_samples.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

// Sample i has input and target i. Some samples may be such that cannot be read.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::set<std::int64_t> bad = {})
      : size_(size), bad_(std::move(bad)) {}
  std::int64_t size() const override { return size_; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    Batch batch;
    batch.targets = batch_tensor({std::ssize(indices)}, at::kLong);
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      if (bad_.contains(indices[i])) throw std::out_of_range("cannot be read");
      batch.targets.mutable_data_ptr<std::int64_t>()[i] = indices[i];
    }
    batch.inputs = batch.targets;
    return batch;
  }

 private:
  std::int64_t size_;
  std::set<std::int64_t> bad_;
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
    Loader loader(numbers, {.size = 7, .order = Order::kSequential},
                  {.batch_size = 3, .workers = workers, .epochs = 2});
    EXPECT_EQ(all_of(loader), (Batches{{0, 1, 2}, {3, 4, 5}, {6}, {0, 1, 2}, {3, 4, 5}, {6}}))
        << workers;
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

TEST(Loader, ResumesFromEveryPosition) {
  const Numbers numbers(23);
  for (int world_size : {1, 2, 3}) {
    for (int workers : kWorkerCounts) {
      const SamplerOptions sampler{
          .size = 23, .world_size = world_size, .rank = world_size - 1, .seed = 5};
      const LoaderOptions options{.batch_size = 4, .workers = workers, .epochs = 3};
      Loader whole(numbers, sampler, options);
      std::vector<SamplerPosition> positions = {{}};
      Batches expected;
      while (const auto batch = whole.next()) {
        expected.push_back(values(*batch));
        positions.push_back(batch->next);
      }
      for (std::size_t done = 0; done <= expected.size(); ++done) {
        EXPECT_EQ(batches_left(sampler, options, positions[done]),
                  std::ssize(expected) - std::ssize(positions) + 1 + std::ssize(expected) -
                      static_cast<std::ptrdiff_t>(done));
        Loader rest(numbers, sampler, options, positions[done]);
        EXPECT_EQ(all_of(rest),
                  Batches(expected.begin() + static_cast<std::ptrdiff_t>(done), expected.end()))
            << world_size << " ranks, " << workers << " workers, after " << done;
      }
    }
  }
}

TEST(Loader, StopsAtTheLimit) {
  const Numbers numbers(10);
  for (int workers : kWorkerCounts) {
    for (std::int64_t limit : {0, 1, 7}) {
      Loader loader(numbers, {.size = 10},
                    {.batch_size = 2, .workers = workers, .epochs = 9, .max_batches = limit});
      EXPECT_EQ(std::ssize(all_of(loader)), limit) << workers;
    }
  }
}

TEST(Loader, ThrowsErrorsInTheCaller) {
  const Numbers numbers(10, {5});
  for (int workers : kWorkerCounts) {
    Loader loader(numbers, {.size = 10, .order = Order::kSequential},
                  {.batch_size = 2, .workers = workers});
    EXPECT_TRUE(loader.next());
    EXPECT_TRUE(loader.next());
    try {
      loader.next();
      ADD_FAILURE() << "no error with " << workers << " workers";
    } catch (const SampleError& error) {
      EXPECT_EQ(error.index, 5);
      EXPECT_STREQ(error.what(), "sample 5: cannot be read");
      EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range)
          << "the exception itself is there too";
    }
    EXPECT_EQ(loader.position(), (SamplerPosition{0, 4})) << "what failed was not consumed";
    EXPECT_EQ(values(*loader.next()), (std::vector<std::int64_t>{6, 7}));
    EXPECT_EQ(loader.position(), (SamplerPosition{0, 8}));
  }
}

TEST(Loader, SkipsWhatCannotBeRead) {
  const Numbers numbers(10, {4, 5, 7});
  for (int workers : kWorkerCounts) {
    const auto skipped = std::make_shared<SkippedSamples>("training set", 2);
    testing::internal::CaptureStderr();
    Loader loader(numbers, {.size = 10, .order = Order::kSequential},
                  {.batch_size = 3, .workers = workers, .epochs = 2, .skipped = skipped});
    EXPECT_EQ(
        all_of(loader),
        (Batches{{0, 1, 2}, {3, 3, 3}, {6, 8, 8}, {9}, {0, 1, 2}, {3, 3, 3}, {6, 8, 8}, {9}}));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(said, "rank 2: sample 7 of the training set is skipped, ")) << workers;
    EXPECT_TRUE(contains(said, "3 so far: cannot be read\n"));
    EXPECT_EQ(std::ranges::count(said, '\n'), 3) << "each sample once: " << said;
    EXPECT_EQ(skipped->count(), 3);
    EXPECT_EQ(loader.position(), (SamplerPosition{2, 0}));
  }
}

TEST(Loader, FailsWhereNoSampleOfABatchCanBeRead) {
  const Numbers numbers(4, {2, 3});
  Loader loader(numbers, {.size = 4, .order = Order::kSequential},
                {.batch_size = 2, .skipped = std::make_shared<SkippedSamples>("training set", 0)});
  EXPECT_EQ(values(*loader.next()), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(error_of([&] { loader.next(); }),
            "samples 2 3 are a whole batch that cannot be read: cannot be read");
}

// Samples 0 and 1 cannot be in one batch.
// A step that ends with its epoch needs no batch of the next one.
TEST(Loader, FailsByTheBatchesOfTheNextStepAlone) {
  const Numbers numbers(3, {0});
  Loader loader(numbers, {.size = 3, .order = Order::kSequential}, {.batch_size = 1, .epochs = 2},
                {0, 1});
  ASSERT_TRUE(loader.is_ready(3, std::chrono::minutes(1)));
  EXPECT_FALSE(loader.fails(3));
  EXPECT_EQ(loader.next_step(3).size(), 2u);
  EXPECT_TRUE(loader.fails(3));
  EXPECT_THROW(loader.next_step(3), SampleError);
}

class Incompatible : public Numbers {
 public:
  Incompatible() : Numbers(2) {}
  Batch collate(std::span<const std::int64_t> indices) const override {
    if (indices.size() > 1) throw std::runtime_error("sizes differ");
    return Numbers::collate(indices);
  }
};

TEST(Loader, NamesTheBatchThatFailsAsAWhole) {
  const Incompatible incompatible;
  for (int workers : kWorkerCounts) {
    Loader loader(incompatible, {.size = 2, .order = Order::kSequential},
                  {.batch_size = 2, .workers = workers});
    EXPECT_EQ(error_of([&] { loader.next(); }), "samples 0 1 cannot be collated: sizes differ");
    const BatchTransform fail = [](Batch&, std::span<const std::uint64_t>) {
      throw std::runtime_error("no");
    };
    Loader transformed(incompatible, {.size = 2, .order = Order::kSequential},
                       {.batch_size = 1, .workers = workers, .transform = fail});
    EXPECT_EQ(error_of([&] { transformed.next(); }), "transform of samples 0: no");
  }
}

// With a tensor of one row for all samples, or of none.
class OneRow : public Numbers {
 public:
  explicit OneRow(bool has_row) : Numbers(2), has_row_(has_row) {}
  Batch collate(std::span<const std::int64_t> indices) const override {
    Batch batch = Numbers::collate(indices);
    batch.named["ink"] =
        has_row_ ? batch_tensor({1}, at::kFloat) : batch_tensor(at::IntArrayRef(), at::kFloat);
    return batch;
  }

 private:
  bool has_row_;
};

TEST(Loader, NamesATensorThatHasNoRowForEachSample) {
  for (const bool has_row : {true, false}) {
    const OneRow data(has_row);
    Loader loader(data, {.size = 2, .order = Order::kSequential}, {.batch_size = 2});
    EXPECT_EQ(error_of([&] { loader.next(); }),
              std::string("the batch's tensor 'ink' has ") + (has_row ? "1 row" : "no dimension") +
                  " for 2 samples: its first dimension is the samples'");
  }
}

TEST(Loader, AnOrderThatDoesNotFitIntoMemoryIsAnErrorOfTheCaller) {
  constexpr std::int64_t kTooMany = std::int64_t{1} << 61;
  const Numbers numbers(kTooMany);
  for (int workers : kWorkerCounts) {
    Loader loader(numbers, {.size = kTooMany}, {.workers = workers});
    EXPECT_NE(error_of([&] { loader.next(); }), "");
  }
}

TEST(Loader, PermutedOrderNeedsNoList) {
  constexpr std::int64_t kMany = std::int64_t{1} << 58;
  const Numbers numbers(kMany);
  Loader loader(numbers, {.size = kMany, .order = Order::kPermuted},
                {.batch_size = 100, .workers = 2});
  const auto first = values(*loader.next());
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 100u);
}

TEST(Loader, EveryOrderGivesEachSampleOnceAnEpoch) {
  const Numbers numbers(97);
  for (Order order : {Order::kShuffled, Order::kPermuted, Order::kSequential}) {
    Loader loader(numbers, {.size = 97, .order = order},
                  {.batch_size = 10, .workers = 2, .epochs = 3});
    std::map<std::int64_t, std::vector<std::int64_t>> epochs;
    while (const auto batch = loader.next()) {
      for (const auto value : values(*batch)) epochs[batch->epoch].push_back(value);
    }
    EXPECT_EQ(epochs[0] == epochs[1], order == Order::kSequential);
    for (auto& [_, samples] : epochs) {
      EXPECT_EQ(std::set(samples.begin(), samples.end()).size(), 97u);
      EXPECT_EQ(samples.size(), 97u);
    }
  }
}

TEST(Loader, DropsTheSmallerLastBatch) {
  const Numbers numbers(7);
  for (int workers : kWorkerCounts) {
    const LoaderOptions options{
        .batch_size = 3, .drop_last = true, .workers = workers, .epochs = 2};
    const SamplerOptions sampler{.size = 7, .order = Order::kSequential};
    Loader loader(numbers, sampler, options);
    EXPECT_EQ(batches_left(sampler, options, {}), 4);
    EXPECT_EQ(all_of(loader), (Batches{{0, 1, 2}, {3, 4, 5}, {0, 1, 2}, {3, 4, 5}}));
    EXPECT_EQ(loader.position(), (SamplerPosition{2, 0}));
    Loader rest(numbers, sampler, options, {0, 5});
    EXPECT_EQ(all_of(rest), (Batches{{0, 1, 2}, {3, 4, 5}}))
        << "two samples are left of the first epoch, too few";
  }
  EXPECT_TRUE(contains(
      error_of([&] { Loader(numbers, {.size = 7}, {.batch_size = 8, .drop_last = true}); }),
      "7 samples, too few for 1 ranks with batches of 8"));
}

// A checkpoint that is written between two batches must not skip what the workers have made ahead.
TEST(Loader, PositionCountsReturnedBatchesOnly) {
  const Numbers numbers(20);
  for (int workers : kWorkerCounts) {
    const LoaderOptions options{
        .batch_size = 2, .workers = workers, .batches_ahead = 8, .epochs = 2};
    Loader loader(numbers, {.size = 20}, options, {0, 6});
    EXPECT_EQ(loader.position(), (SamplerPosition{0, 6}));
    for (std::int64_t consumed = 8; consumed < 20; consumed += 2) {
      loader.next();
      EXPECT_EQ(loader.position(), (SamplerPosition{0, consumed}));
    }
    loader.next();
    EXPECT_EQ(loader.position(), (SamplerPosition{1, 0}))
        << "the end of an epoch is the start of the next";
  }
}

// Remembers the memory that it collated into, and the threads.
class Watched : public Numbers {
 public:
  using Numbers::Numbers;
  Batch collate(std::span<const std::int64_t> indices) const override {
    Batch batch = Numbers::collate(indices);
    const std::lock_guard lock(mutex_);
    memory_[indices.front()] = batch.inputs.const_data_ptr();
    threads_.insert(std::this_thread::get_id());
    return batch;
  }
  const void* memory_of(std::int64_t first) const {
    const std::lock_guard lock(mutex_);
    return memory_.at(first);
  }
  bool worked_here() const { return threads_.contains(std::this_thread::get_id()); }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, const void*> memory_;
  mutable std::set<std::thread::id> threads_;
};

TEST(Loader, GivesTheTensorsThatWereCollated) {
  for (int workers : kWorkerCounts) {
    const Watched watched(40);
    Loader loader(watched, {.size = 40}, {.batch_size = 4, .workers = workers});
    while (const auto batch = loader.next())
      EXPECT_EQ(batch->inputs.const_data_ptr(), watched.memory_of(values(*batch).front()));
    EXPECT_EQ(watched.worked_here(), workers == 0);
  }
}

// Sample and epoch to seed, of everything that these ranks load from `start` on.
using Seeds = std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t>;

Seeds seeds_of(std::int64_t size, int world_size, LoaderOptions options,
               SamplerPosition start = {}) {
  Seeds seeds;
  const Numbers numbers(size);
  options.transform = [](Batch& batch, std::span<const std::uint64_t> of_samples) {
    batch.inputs = batch_tensor({batch.samples()}, at::kLong);
    std::copy(of_samples.begin(), of_samples.end(), batch.inputs.mutable_data_ptr<std::int64_t>());
  };
  for (int rank = 0; rank < world_size; ++rank) {
    Loader loader(numbers, {.size = size, .world_size = world_size, .rank = rank, .seed = 9},
                  options, start);
    while (const auto batch = loader.next()) {
      for (std::int64_t i = 0; i < batch->samples(); ++i) {
        const auto seed =
            static_cast<std::uint64_t>(batch->inputs.const_data_ptr<std::int64_t>()[i]);
        const auto [known, added] = seeds.emplace(std::pair(values(*batch)[i], batch->epoch), seed);
        EXPECT_EQ(known->second, seed);
      }
    }
  }
  return seeds;
}

TEST(Loader, SeedsBelongToSampleAndEpochWhateverElseChanges) {
  const Seeds seeds = seeds_of(30, 1, {.batch_size = 4, .workers = 0, .epochs = 2});
  EXPECT_EQ(seeds.size(), 60u);
  std::set<std::uint64_t> different;
  for (const auto& [_, seed] : seeds) different.insert(seed);
  EXPECT_EQ(different.size(), 60u);
  for (int workers : kWorkerCounts) {
    EXPECT_EQ(seeds_of(30, 1, {.batch_size = 7, .workers = workers, .epochs = 2}), seeds);
    EXPECT_EQ(seeds_of(30, 4, {.batch_size = 3, .workers = workers, .epochs = 2}), seeds);
  }
  for (const auto& [sample, seed] : seeds_of(30, 1, {.workers = 3, .epochs = 2}, {1, 12}))
    EXPECT_EQ(seeds.at(sample), seed);
}

// Batches wait until they are let go.
class Gate : public Numbers {
 public:
  using Numbers::Numbers;
  Batch collate(std::span<const std::int64_t> indices) const override {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
    return Numbers::collate(indices);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable opened_;
  bool open_ = false;
};

TEST(Loader, NamesTheBatchThatIsNotMadeInTime) {
  Gate gate(4);
  Loader loader(gate, {.size = 4, .order = Order::kSequential},
                {.batch_size = 2, .timeout = std::chrono::milliseconds(20)});
  EXPECT_TRUE(contains(error_of([&] { loader.next(); }),
                       "batch 0 since the start was not made within 20 ms"));
  gate.open();
  std::optional<Batch> batch;
  while (!batch) {
    try {
      batch = loader.next();
    } catch (const TrainError&) {
    }
  }
  EXPECT_EQ(values(*batch), (std::vector<std::int64_t>{0, 1})) << "it was late, not lost";
}

TEST(Loader, StopsInTheMiddle) {
  const Numbers numbers(1000);
  for (int workers : kWorkerCounts) {
    for (int taken : {0, 1, 5}) {
      Loader loader(numbers, {.size = 1000},
                    {.batch_size = 1, .workers = workers, .batches_ahead = 2});
      for (int i = 0; i < taken; ++i) EXPECT_TRUE(loader.next());
    }
  }
}

TEST(Loader, RejectsImpossibleOptions) {
  const Numbers numbers(10);
  const std::map<std::string, LoaderOptions> kCases = {
      {"batch_size is 0: expected at least 1", {.batch_size = 0}},
      {"workers is -1: expected at least 0", {.workers = -1}},
      {"batches_ahead is 0: expected at least 1", {.batches_ahead = 0}},
      {"epochs is -2: expected at least 0", {.epochs = -2}},
  };
  for (const auto& [expected, options] : kCases) {
    EXPECT_TRUE(contains(error_of([&] { Loader(numbers, {.size = 10}, options); }), expected));
  }
}

// The threads that were started end, and the error is the caller's.
TEST(Loader, ReportsThatTheSystemStartsNoMoreThreads) {
  const auto start_too_many = [] {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t room_for_some_stacks =
        pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (200 << 20);
    const rlimit limit{room_for_some_stacks, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    const Numbers numbers(10);
    const std::string error = error_of([&] { Loader(numbers, {.size = 10}, {.workers = 200}); });
    std::fputs(error.c_str(), stderr);
    _exit(0);
  };
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(0),
              "cannot start data loading thread [0-9]+ of 200");
}

TEST(Loader, RejectsADataSetThatIsTooSmall) {
  const Numbers numbers(3);
  const SamplerOptions sampler{.size = 3, .world_size = 4, .drop_last = true};
  EXPECT_TRUE(
      contains(error_of([&] { Loader(numbers, sampler, {}); }), "3 samples, too few for 4 ranks"));
}

}  // namespace
}  // namespace torchbridge::train
