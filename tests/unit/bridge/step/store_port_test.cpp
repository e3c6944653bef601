// The port of rank 0's store, as processes of one run reserve it.
#include "bridge/step/store_port.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

constexpr int kAtOnce = 4;

// Forks processes that call reserve_store_port() at the same time, and hold what they got until all
// have it. Returns how many got it.
int count_of_reservations(const Endpoint& master, const std::string& run_id) {
  std::array<int, 2> start{}, results{}, end{};
  EXPECT_EQ(pipe(start.data()) + pipe(results.data()) + pipe(end.data()), 0);
  char byte = 0;
  for (int process = 0; process < kAtOnce; ++process) {
    if (fork() != 0) continue;
    close(start[1]);
    close(end[1]);
    (void)!::read(start[0], &byte, 1);
    const auto socket = reserve_store_port(master, run_id);
    (void)!write(results[1], socket ? "1" : "0", 1);
    (void)!::read(end[0], &byte, 1);
    _exit(0);
  }
  close(start[1]);
  int found = 0;
  for (int process = 0; process < kAtOnce; ++process) {
    EXPECT_EQ(::read(results[0], &byte, 1), 1);
    found += byte == '1';
  }
  close(end[1]);
  for (int process = 0; process < kAtOnce; ++process) wait(nullptr);
  for (const int descriptor : {start[0], results[0], results[1], end[0]}) close(descriptor);
  return found;
}

// As of three programs that a task of the plugin starts with `&`.
TEST(StorePort, IsThatOfOneOfSeveralProcessesThatStartAtOnceBelowItsHolder) {
  Endpoint master{"127.0.0.1", 0};
  {
    const auto free = reserve({master.host, 0}, -1, false);
    ASSERT_TRUE(free) << free.error().message;
    master.port = *bound_port(*free);
  }
  for (int round = 0; round < 50; ++round) {
    const std::string run_id = "store-port-" + std::to_string(getpid()) + std::to_string(round);
    const auto above = reserve_store_port(master, run_id);
    ASSERT_TRUE(above) << above.error().message;
    EXPECT_EQ(count_of_reservations(master, run_id), 1) << "round " << round;
  }
}

}  // namespace
}  // namespace torchbridge
