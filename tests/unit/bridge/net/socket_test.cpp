#include "bridge/net/socket.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(Socket, TakesAFreePortAndKeepsOthersOut) {
  const auto socket = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(socket) << socket.error().message;
  const int port = *bound_port(*socket);
  EXPECT_GT(port, 0);
  EXPECT_FALSE(port_is_free(port));
  const auto second = listen_on({"127.0.0.1", port});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            "cannot listen on 127.0.0.1 port " + std::to_string(port) +
                ": Address already in use: another program uses it; choose another port, or end that program");
}

TEST(Socket, GivesThePortBackWhenItGoes) {
  int port = 0;
  {
    const auto socket = listen_on({"127.0.0.1", 0});
    port = *bound_port(*socket);
  }
  EXPECT_TRUE(listen_on({"127.0.0.1", port}));
}

TEST(Socket, StaysOpenWhenReleased) {
  auto socket = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(socket);
  Socket moved = std::move(*socket);
  const int descriptor = moved.release();
  EXPECT_FALSE(moved.open());
  EXPECT_NE(fcntl(descriptor, F_GETFD), -1);
  Socket owner(descriptor);
}

TEST(Reserve, KeepsThePortForTheProgramThatInheritsIt) {
  auto reserved = reserve({"127.0.0.1", 0});
  ASSERT_TRUE(reserved) << reserved.error().message;
  const int port = *bound_port(*reserved);
  EXPECT_EQ(fcntl(reserved->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(inherit(reserved->descriptor(), port + 1));
  const auto inherited = inherit(reserved->release(), port);
  ASSERT_TRUE(inherited);
  EXPECT_NE(fcntl(inherited->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(connect_to({"127.0.0.1", port}, std::chrono::seconds(5)));
  EXPECT_FALSE(listen_on({"127.0.0.1", port}));
}

// A shell that started a program with it starts another one.
TEST(Reserve, DoesNotListenWhenTheProgramIsGoneThatDid) {
  const auto shell = reserve({"127.0.0.1", 0});
  ASSERT_TRUE(shell) << shell.error().message;
  const int port = *bound_port(*shell);
  for (const char* program : {"first", "second"}) {
    const int inherited = dup(shell->descriptor());
    const auto socket = inherit(inherited, port);
    ASSERT_TRUE(socket) << program;
    EXPECT_FALSE(listen_on({"127.0.0.1", port})) << program;
  }
  EXPECT_TRUE(listen_on({"127.0.0.1", port}));
}

TEST(Reserve, LeavesTheNumbersOfClosedStandardStreamsAlone) {
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  const auto reserved = reserve({"127.0.0.1", 0});
  EXPECT_EQ(fcntl(STDIN_FILENO, F_GETFD), -1);
  dup2(input, STDIN_FILENO);
  close(input);
  ASSERT_TRUE(reserved) << reserved.error().message;
  EXPECT_GT(reserved->descriptor(), STDERR_FILENO);
}

TEST(Reserve, LetsAProgramListenThatHasTheNumber) {
  const auto reserved = reserve({"127.0.0.1", 0});
  ASSERT_TRUE(reserved);
  EXPECT_TRUE(listen_on({"0.0.0.0", *bound_port(*reserved)}));
}

TEST(HoldPort, KeepsOtherProcessesThatReserveFromIt) {
  const int port = *bound_port(*listen_on({"127.0.0.1", 0}));
  EXPECT_TRUE(hold_port(port));
  EXPECT_TRUE(hold_port(port)) << "the same process";
  // Another process is one that does not know of it.
  const pid_t other = fork();
  if (other == 0) {
    execlp("python3", "python3", "-c",
           ("import socket; socket.socket(socket.AF_UNIX).bind('\\0torchbridge/port/" + std::to_string(port) + "')")
               .c_str(),
           nullptr);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_NE(status, 0);
}

TEST(Reserve, InheritsOnlySockets) {
  EXPECT_FALSE(inherit(-1, 1));
  const int file = open("/dev/null", O_RDONLY);
  EXPECT_FALSE(inherit(file, 1));
  close(file);
}

TEST(Socket, RejectsAddressesOfOtherHosts) {
  EXPECT_NE(listen_on({"localhost", 0}).error().message.find("expected a numeric IPv4 or IPv6 address"),
            std::string::npos);
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  EXPECT_NE(listen_on({"192.0.2.1", 0}).error().message.find("no interface of this host has that address"),
            std::string::npos);
}

}  // namespace
}  // namespace torchbridge
