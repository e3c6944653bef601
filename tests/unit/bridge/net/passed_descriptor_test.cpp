#include "bridge/net/passed_descriptor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

#include "tests/support/child_ending.h"

namespace torchbridge {
namespace {

std::array<Socket, 2> pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("no sockets");
  return {Socket(ends[0]), Socket(ends[1])};
}

TEST(PassedDescriptor, OutlivesTheProcessThatPassedIt) {
  const auto [in, out] = pair();
  const auto pass = [&, &channel = in] {
    int data[2];
    if (pipe(data) != 0 || write(data[1], "x", 1) != 1) _exit(1);
    _exit(pass_descriptor(channel, data[0], 7) ? 0 : 1);
  };
  ASSERT_EQ(ending_of_child(pass), exited(0));
  const auto taken = take_descriptor(out);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->number, 7u);
  char byte = 0;
  EXPECT_EQ(read(taken->descriptor.descriptor(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_NE(fcntl(taken->descriptor.descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(PassedDescriptor, KeepsTheOrderAndDoesNotWait) {
  const auto [in, out] = pair();
  EXPECT_FALSE(take_descriptor(out));
  for (std::uint32_t number = 0; number < 3; ++number)
    ASSERT_TRUE(pass_descriptor(in, STDIN_FILENO, number));
  for (std::uint32_t number = 0; number < 3; ++number)
    EXPECT_EQ(take_descriptor(out)->number, number);
  EXPECT_FALSE(take_descriptor(out));
  while (pass_descriptor(in, STDIN_FILENO, 0)) {
  }
  EXPECT_EQ(errno, EAGAIN);
}

TEST(PassedDescriptor, IsEmptyWhereNothingWasPassed) {
  const auto [in, out] = pair();
  EXPECT_FALSE(pass_descriptor(in, -1, 0));
  EXPECT_FALSE(pass_descriptor(Socket(), STDIN_FILENO, 0));
  EXPECT_FALSE(take_descriptor(out));
  EXPECT_FALSE(take_descriptor(Socket()));
}

}  // namespace
}  // namespace torchbridge
