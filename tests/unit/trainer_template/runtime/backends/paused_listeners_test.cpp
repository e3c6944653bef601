#include "trainer_template/runtime/backends/paused_listeners.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>

#include <gtest/gtest.h>

#include "bridge/net/socket.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// A library's thread: an epoll set that watches a listening socket.
class PausedListenersTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(socket_.open());
    fcntl(socket_.descriptor(), F_SETFL, O_NONBLOCK);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kData}};
    ASSERT_EQ(epoll_ctl(set_.descriptor(), EPOLL_CTL_ADD, socket_.descriptor(), &event), 0);
  }

  bool connects() {
    connections_.push_back(connect_to({"127.0.0.1", *bound_port(socket_)}, milliseconds(200)));
    return static_cast<bool>(connections_.back());
  }
  // Whether the library would accept.
  bool is_told() {
    epoll_event event{};
    return epoll_wait(set_.descriptor(), &event, 1, 0) == 1 && event.data.u64 == kData;
  }
  Socket accepted() { return Socket(accept4(socket_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK)); }

  static constexpr std::uint64_t kData = 0x7f2a'3c00'12e0;
  Socket socket_ = *listen_on({"127.0.0.1", 0});
  const Socket set_{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<Result<Socket>> connections_;
};

TEST_F(PausedListenersTest, AcceptNobodyUntilTheyAreResumed) {
  ASSERT_TRUE(connects());
  ASSERT_TRUE(is_told());
  const Socket before = accepted();
  const PausedListeners paused({socket_.descriptor()}, epoll_sets());
  EXPECT_FALSE(paused.empty());
  for (int i = 0; i < 4; ++i) (void)connects();  // the kernel keeps one
  EXPECT_FALSE(connects());
  EXPECT_FALSE(is_told());
  char byte = 'x';
  ASSERT_EQ(send(connections_.front()->descriptor(), &byte, 1, 0), 1);
  EXPECT_EQ(recv(before.descriptor(), &byte, 1, 0), 1) << "an earlier connection";

  paused.resume();
  EXPECT_TRUE(is_told());
  while (accepted().open()) continue;
  EXPECT_TRUE(connects());
  EXPECT_TRUE(is_told());

  paused.pause();
  EXPECT_FALSE(is_told());
  socket_ = Socket();
  paused.resume();  // no effect
  EXPECT_FALSE(is_told());
}

TEST_F(PausedListenersTest, OtherSocketsAreLeftAlone) {
  EXPECT_TRUE(PausedListeners({socket_.descriptor()}, {}).empty()) << "another epoll set watches it";
  const PausedListeners others({set_.descriptor(), 0, 1, 2, 100'000}, epoll_sets());
  EXPECT_TRUE(others.empty());
  EXPECT_TRUE(connects());
  EXPECT_TRUE(is_told());
}

}  // namespace
}  // namespace torchbridge::train
