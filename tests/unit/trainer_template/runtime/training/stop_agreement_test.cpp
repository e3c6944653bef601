#include "trainer_template/runtime/training/stop_agreement.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torchbridge/data.h>

#include "tests/support/alone.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// Like storage that hangs: gives a batch only after allow().
class Slow : public Dataset {
 public:
  std::int64_t size() const override { return 100; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed_ > 0; });
    --allowed_;
    Batch batch;
    batch.inputs = batch.targets = batch_tensor({std::ssize(indices)}, at::kLong);
    return batch;
  }
  void allow(int batches) {
    const std::lock_guard lock(mutex_);
    allowed_ += batches;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int allowed_ = 0;
};

// Wants to stop at the `signal_at`th call.
struct Asked {
  explicit Asked(Loader& loader, std::int64_t parts = 1, int signal_at = 1'000'000)
      : agreement(alone(),
                  {.wants_to_stop = [this, signal_at] { return ++asked >= signal_at; },
                   .has_data = [&loader, parts](
                                   milliseconds time) { return loader.is_ready(parts, time); }}) {}
  int asked = 0;
  StopAgreement agreement;
};

TEST(StopAgreement, StopsWhileDataIsWaitedFor) {
  Slow slow;
  Loader loader(slow, {.size = 100}, {.batch_size = 1});
  Asked rank(loader, 1, 3);
  EXPECT_FALSE(rank.agreement.may_step());
  EXPECT_TRUE(rank.agreement.agreed());
  EXPECT_EQ(rank.asked, 3);
  slow.allow(100);
}

TEST(StopAgreement, ContinuesWhenTheDataIsThere) {
  Slow slow;
  Loader loader(slow, {.size = 100}, {.batch_size = 1});
  Asked rank(loader, 2);
  std::thread later([&] { slow.allow(2); });
  EXPECT_TRUE(rank.agreement.may_step());
  later.join();
  EXPECT_EQ(rank.agreement.votes().without_data, 0);
  loader.next();
  EXPECT_EQ(rank.agreement.votes().without_data, 1) << "two are needed, one is left";
  slow.allow(100);
}

TEST(StopAgreement, DataThatFailStopTheNextStepAlone) {
  StopAgreement agreement(
      alone(),
      {.wants_to_stop = [] { return false; }, .has_data = {}, .data_fail = [] { return true; }});
  EXPECT_EQ(agreement.votes().stop, 1);
  EXPECT_EQ(agreement.votes(/*is_last=*/true).stop, 0);
  StopPoller poller(agreement);
  EXPECT_FALSE(poller.stop_now()) << "an evaluation is of the step before";
  EXPECT_FALSE(agreement.may_step());
  EXPECT_TRUE(agreement.agreed());
}

TEST(StopAgreement, WaitsInTheStepAgainOnlyWhenARankLacksData) {
  Slow slow;
  slow.allow(100);
  Loader loader(slow, {.size = 100}, {.batch_size = 1});
  Asked rank(loader);
  EXPECT_TRUE(rank.agreement.may_step());
  const int asked = rank.asked;
  rank.agreement.take_sums({.stop = 0, .without_data = 0});
  EXPECT_TRUE(rank.agreement.may_step());
  EXPECT_EQ(rank.asked, asked) << "no collective of its own";
  rank.agreement.take_sums({.stop = 0, .without_data = 1});
  EXPECT_TRUE(rank.agreement.may_step());
  EXPECT_GT(rank.asked, asked);
  rank.agreement.take_sums({.stop = 1, .without_data = 0});
  EXPECT_FALSE(rank.agreement.may_step());
}

TEST(StopAgreement, EndsWithTheLoadersErrorWhenABatchNeverComes) {
  Slow slow;
  Loader loader(slow, {.size = 100}, {.batch_size = 1, .timeout = milliseconds(50)});
  Asked rank(loader);
  EXPECT_TRUE(rank.agreement.may_step());
  EXPECT_THROW(loader.next(), TrainError);
  slow.allow(100);
}

TEST(StopPoller, AsksTenTimesASecond) {
  StopCallbacks callbacks;
  int asked = 0;
  callbacks.wants_to_stop = [&] { return ++asked > 3; };
  StopAgreement agreement(alone(), callbacks);
  StopPoller::Clock::time_point now;
  StopPoller poller(agreement, [&] { return now; });
  std::vector<int> asked_before;  // which calls
  for (int call = 0; asked < 4; ++call) {
    const int before = asked;
    const bool stop = poller.stop_now();
    EXPECT_EQ(stop, asked == 4);
    if (asked > before) asked_before.push_back(call);
    now += std::chrono::milliseconds(1);
  }
  EXPECT_EQ(asked_before, (std::vector<int>{0, 1, 101, 201}))
      << "a tenth of a second is a hundred calls";
}

}  // namespace
}  // namespace torchbridge::train
