#include "bridge/base/random_number.h"

#include <set>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(RandomNumber, IsAnotherOneEachTime) {
  std::set<std::uint32_t> numbers;
  for (int i = 0; i < 100; ++i) numbers.insert(random_number());
  EXPECT_GT(numbers.size(), 98u);  // two equal ones among a hundred come once in a million runs
}

}  // namespace
}  // namespace torchbridge
