#include "trainer_template/runtime/rendezvous/file_store.h"

#include <barrier>
#include <filesystem>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace torchbridge::train {
namespace {

constexpr std::chrono::milliseconds kTimeout{20000};

c10::intrusive_ptr<c10d::Store> store_of(const std::string& file, int rank, int world_size) {
  return open_file_store(file, {.rank = rank, .world_size = world_size}, kTimeout);
}

TEST(FileStore, IsGoneAfterRanksThatLeaveAtTheSameTime) {
  constexpr int kRanks = 4, kRuns = 1000;
  const TemporaryFolder folder;
  for (int run = 0; run < kRuns; ++run) {
    const std::string file = folder / "store";
    std::barrier joined(kRanks);
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        auto store = store_of(file, rank, kRanks);
        joined.arrive_and_wait();
      });
    }
    ranks.clear();  // waits for all
    ASSERT_FALSE(std::filesystem::exists(file)) << "run " << run;
  }
}

TEST(FileStore, StaysUntilAllRanksHaveBeenHere) {
  const TemporaryFolder folder;
  const std::string file = folder / "store";
  store_of(file, 1, 3).reset();
  EXPECT_TRUE(std::filesystem::exists(file));
  auto first = store_of(file, 0, 3);
  store_of(file, 2, 3).reset();
  EXPECT_TRUE(std::filesystem::exists(file));
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace torchbridge::train
