#include "bridge/net/peer_user.h"

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

#include <gtest/gtest.h>

#include "bridge/net/socket.h"
#include "tests/support/other_user.h"

namespace torchbridge {
namespace {

constexpr uid_t kNobody = 65534;
constexpr std::chrono::seconds kLimit{10};

// Becomes another user, accepts a connection and answers it.
bool answer_as_nobody(const Socket& listener) {
  if (setuid(kNobody) != 0) return false;
  const int connection = accept(listener.descriptor(), nullptr, nullptr);
  return connection >= 0 && send(connection, "x", 1, 0) == 1;
}

TEST(PeerUser, IsThatOfTheProgramThatAnswers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  // An IPv4 client's connection has IPv6 addresses at the other end where that listens at both.
  for (const auto& [where, target] :
       {std::pair{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"::", "127.0.0.1"}}) {
    const auto listener = listen_on({where, 0});
    ASSERT_TRUE(listener) << listener.error().message;
    const auto client = connect_to({target, *bound_port(*listener)}, kLimit);
    ASSERT_TRUE(client) << client.error().message;
    const Child other([&] { return answer_as_nobody(*listener); });
    char byte = 0;
    ASSERT_EQ(recv(client->descriptor(), &byte, 1, 0), 1);
    EXPECT_EQ(user_of_peer(client->descriptor()), PeerUser::kAnotherUser) << where;
  }
}

// A client of that user at 127.0.0.1 or ::1, which does something with its connection.
PeerUser user_of_client(
    uid_t user, const char* address,
    const std::function<bool(int)>& act = [](int) { return true; }) {
  const auto listener = listen_on({"::", 0});
  if (!listener) throw std::runtime_error(listener.error().message);
  Result<Socket> connected = Socket();
  const Child client([&] {
    if (setuid(user) != 0) return false;
    connected = connect_to({address, *bound_port(*listener)}, kLimit);
    return connected && act(connected->descriptor());
  });
  const Socket accepted(accept(listener->descriptor(), nullptr, nullptr));
  return user_of_peer(accepted.descriptor());
}

TEST(PeerUser, IsThatOfTheProgramThatConnects) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  for (const char* address : {"127.0.0.1", "::1"}) {
    EXPECT_EQ(user_of_client(0, address), PeerUser::kThisUser);
    EXPECT_EQ(user_of_client(kNobody, address), PeerUser::kAnotherUser);
  }
}

// Who makes the kernel find no such socket is another user: by an interface to which it is bound,
// or as it sends no more.
TEST(PeerUser, IsAnotherWhereTheSocketIsHidden) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  for (const char* address : {"127.0.0.1", "::1"}) {
    const auto bind_to_interface = [](int connection) {
      return setsockopt(connection, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof "lo") == 0;
    };
    EXPECT_EQ(user_of_client(kNobody, address, bind_to_interface), PeerUser::kAnotherUser);
    const auto half_close = [](int connection) { return shutdown(connection, SHUT_WR) == 0; };
    EXPECT_EQ(user_of_client(kNobody, address, half_close), PeerUser::kAnotherUser);
  }
}

TEST(PeerUser, IsAnotherWhereTheConnectionIsClosed) {
  const auto listener = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(listener) << listener.error().message;
  const auto client = connect_to({"127.0.0.1", *bound_port(*listener)}, kLimit);
  ASSERT_TRUE(client) << client.error().message;
  Socket accepted(accept(listener->descriptor(), nullptr, nullptr));
  EXPECT_EQ(user_of_peer(client->descriptor()), PeerUser::kThisUser);
  accepted = Socket();
  EXPECT_EQ(user_of_peer(client->descriptor()), PeerUser::kAnotherUser);
  EXPECT_EQ(user_of_peer(-1), PeerUser::kAnotherUser);
}

}  // namespace
}  // namespace torchbridge
