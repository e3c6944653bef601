#include "bridge/net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/free_port.h"
#include "tests/support/other_user.h"

namespace torchbridge {
namespace {

// Not open where the kernel has no such address.
Socket bound_socket(const std::string& host, int port, bool is_shared, bool listens) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(static_cast<std::uint16_t>(port));
  const bool is_v6 = inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1;
  if (is_v6) inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr);
  Socket socket(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = is_shared ? 1 : 0;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const int bound =
      is_v6 ? bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&v6), sizeof v6)
            : bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  if (bound != 0 || (listens && listen(socket.descriptor(), 1) != 0)) return Socket();
  return socket;
}

// At which no connection of another program has lingered at the start: beside it, the kernel shows
// no socket that is shared and does not listen.
int quiet_port() {
  int port = 0;
  do port = free_port();
  while (!bound_socket("0.0.0.0", port, false, false).open());
  return port;
}

TEST(Socket, TakesAFreePortAndKeepsOthersOut) {
  const auto socket = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(socket) << socket.error().message;
  const int port = *bound_port(*socket);
  EXPECT_GT(port, 0);
  EXPECT_FALSE(port_is_free(port));
  const auto second = listen_on({"127.0.0.1", port});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "cannot listen on 127.0.0.1 port " + std::to_string(port) +
                                        ": Address already in use: another program uses it; choose "
                                        "another port, or end that program");
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

// Also of one that does not listen, at any address, with or without SO_REUSEADDR: that of another
// user's run.
TEST(Reserve, RefusesAPortThatAnotherSocketHas) {
  for (const char* address : {"127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"}) {
    for (const bool is_shared : {false, true}) {
      for (const bool listens : {false, true}) {
        const int port = quiet_port();
        const Socket other = bound_socket(address, port, is_shared, listens);
        if (!other.open()) continue;  // no IPv6
        EXPECT_FALSE(port_is_free(port)) << address << is_shared << listens;
        EXPECT_FALSE(reserve({"127.0.0.1", port})) << address << is_shared << listens;
      }
    }
  }
}

TEST(Reserve, RefusesAPortThatIsReserved) {
  const auto first = reserve({"127.0.0.1", 0});
  ASSERT_TRUE(first) << first.error().message;
  const auto second = reserve({"127.0.0.1", *bound_port(*first)});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("Address already in use"), std::string::npos)
      << second.error().message;
}

// One that a run before has used.
int port_with_lingering_connection() {
  const auto listener = listen_on({"127.0.0.1", 0});
  const int port = *bound_port(*listener);
  const auto client = connect_to({"127.0.0.1", port}, std::chrono::seconds(5));
  const Socket accepted(accept(listener->descriptor(), nullptr, nullptr));
  EXPECT_FALSE(port_is_free(port)) << "has a listener";
  shutdown(accepted.descriptor(), SHUT_RDWR);  // the side that closes first lingers
  char byte = 0;
  EXPECT_EQ(read(client->descriptor(), &byte, 1), 0);
  return port;
}

// A run that begins at once after another one, with the same --master-port.
TEST(Reserve, TakesAPortOnWhichOnlyEndedConnectionsLinger) {
  const int port = port_with_lingering_connection();
  EXPECT_TRUE(port_is_free(port));
  const auto reserved = reserve({"127.0.0.1", port});
  ASSERT_TRUE(reserved) << reserved.error().message;
}

TEST(Reserve, RefusesAPortThatASocketHasBesideLingeringConnections) {
  for (const char* address : {"127.0.0.2", "::1"}) {
    const int port = port_with_lingering_connection();
    const Socket other = bound_socket(address, port, false, false);
    if (!other.open()) continue;  // no IPv6
    EXPECT_FALSE(port_is_free(port)) << address;
    EXPECT_FALSE(reserve({"127.0.0.1", port})) << address;
  }
}

TEST(Reserve, GetsAPortAgainThatThisProcessHasReserved) {
  for (const bool lingers : {false, true}) {
    const int port = lingers ? port_with_lingering_connection() : free_port();
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto reserved = reserve({"127.0.0.1", port});
      EXPECT_TRUE(reserved) << attempt << ": " << reserved.error().message;
    }
  }
}

TEST(Reserve, SharesAPortThatOthersHaveReservedWhereItIsAsked) {
  const int port = quiet_port();
  const auto other = reserve({"127.0.0.1", port});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_FALSE(reserve({"127.0.0.1", port}));
  EXPECT_TRUE(reserve({"127.0.0.1", port}, -1, true));
  const auto listener = listen_on({"127.0.0.1", port});
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_FALSE(reserve({"127.0.0.1", port}, -1, true)) << "has a listener";
}

TEST(Names, OneProcessHoldsAKey) {
  const std::string key = "held by a child of " + std::to_string(getpid());
  {
    const Child holder([&] { return claim_name(key); });
    EXPECT_FALSE(claim_name(key));
    EXPECT_EQ(holder_of_name(key), holder.id());
  }
  EXPECT_EQ(holder_of_name(key), std::nullopt);
  EXPECT_TRUE(claim_name(key));
  EXPECT_TRUE(claim_name(key)) << "the same process";
}

// Any user can bind any abstract name.
TEST(Names, ThoseThatAnotherUserHasArePassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const std::string key = "attacked " + std::to_string(getpid());
  for (const bool listens : {true, false}) {
    const Child attacker([&] { return take_as_nobody(key, 5, listens); });
    const auto listener = listen_on_name(key);
    ASSERT_TRUE(listener) << listener.error().message;
    const auto connection = connect_to_name(key);
    ASSERT_TRUE(connection) << connection.error().message;
    EXPECT_TRUE(is_of_this_user(Socket(accept(listener->descriptor(), nullptr, nullptr))));

    const std::string held = key + (listens ? " listening" : " bound");
    const Child other_attacker([&] { return take_as_nobody(held, 5, listens); });
    {
      const Child holder([&] { return claim_name(held); });
      EXPECT_FALSE(claim_name(held)) << "a process of this user has it";
    }
    EXPECT_TRUE(claim_name(held));
  }
}

TEST(Names, NoneIsAnErrorForThoseThatConnect) {
  EXPECT_EQ(connect_to_name("none " + std::to_string(getpid())).error().message,
            "Connection refused");
}

TEST(Reserve, InheritsOnlySockets) {
  EXPECT_FALSE(inherit(-1, 1));
  const int file = open("/dev/null", O_RDONLY);
  EXPECT_FALSE(inherit(file, 1));
  close(file);
}

TEST(Socket, RejectsAddressesOfOtherHosts) {
  EXPECT_NE(
      listen_on({"localhost", 0}).error().message.find("expected a numeric IPv4 or IPv6 address"),
      std::string::npos);
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  EXPECT_NE(listen_on({"192.0.2.1", 0})
                .error()
                .message.find("no interface of this host has that address"),
            std::string::npos);
}

}  // namespace
}  // namespace torchbridge
