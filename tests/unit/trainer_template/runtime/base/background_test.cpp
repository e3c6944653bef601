#include "trainer_template/runtime/base/background.h"

#include <numeric>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

std::vector<int> first(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(Background, RunsInOrderUntilDrained) {
  std::vector<int> done;
  std::thread::id worker;
  Background background("tests");
  for (int i = 0; i < 100; ++i) {
    background.post([&, i] {
      done.push_back(i);
      worker = std::this_thread::get_id();
    });
    if (i % 10 == 9) {
      background.drain();
      EXPECT_EQ(done, first(i + 1));
    }
  }
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(Background, RunsTheQueueBeforeItIsDestroyed) {
  std::vector<int> done;
  {
    Background background("tests");
    for (int i = 0; i < 100; ++i) background.post([&, i] { done.push_back(i); });
  }
  EXPECT_EQ(done, first(100));
}

TEST(Background, DrainsAnEmptyQueue) {
  Background background("tests");
  background.drain();
  background.drain();
}

}  // namespace
}  // namespace torchbridge::train
