#include "bridge/host/small_memory.h"

#include <sys/resource.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge {
namespace {

class SmallMemoryTest : public testing::Test {
 protected:
  void SetUp() override { getrlimit(RLIMIT_MEMLOCK, &before_); }
  void TearDown() override { setrlimit(RLIMIT_MEMLOCK, &before_); }
  static void lock_at_most(rlim_t bytes) {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    limit.rlim_cur = bytes;
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  }
  TemporaryFolder folder_;
  rlimit before_{};
};

TEST_F(SmallMemoryTest, LockedMemoryCountsWhereThereIsInfiniBand) {
  lock_at_most(64 << 10);
  const SmallMemoryPaths without{.shared_memory = "/none", .infiniband = folder_ / "none"};
  EXPECT_EQ(small_memory(without), SmallMemory{});
  std::filesystem::create_directories(folder_ / "infiniband/mlx5_0");
  const SmallMemoryPaths with{.shared_memory = "/none", .infiniband = folder_ / "infiniband"};
  EXPECT_EQ(small_memory(with).locked, "64 KiB");
}

// The root of /proc, like all of it, holds nothing.
TEST_F(SmallMemoryTest, ASmallFileSystemForSharedMemoryIsNamed) {
  EXPECT_EQ(small_memory({.shared_memory = "/proc", .infiniband = "/none"}).shared, "0 MiB");
  EXPECT_EQ(small_memory({.shared_memory = "/none", .infiniband = "/none"}), SmallMemory{});
}

}  // namespace
}  // namespace torchbridge
