#include "bridge/coordination/coordinator_server.h"

#include <sys/socket.h>

#include <gtest/gtest.h>

using namespace torchbridge;
using std::chrono::seconds;

namespace {

// Such as a check of the port, or an agent whose link is down since.
TEST(CoordinatorServer, OneThatConnectsAndIsSilentIsClosedAndKeepsNobodyBusy) {
  CoordinatorRules rules;
  rules.run_id = "run";
  auto listener = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  const auto port = bound_port(*listener);
  ASSERT_TRUE(port);
  CoordinatorServer::Time now{};
  auto server = CoordinatorServer::open(std::move(*listener), Coordinator(rules, {}, 0, now));
  ASSERT_TRUE(server);
  const auto silent = connect_to({"127.0.0.1", *port}, seconds(5));
  ASSERT_TRUE(silent);
  for (const auto end = now + 2 * kHelloDeadline; now < end; now = std::min(server->next_deadline(), end)) {
    server->carry(now);
    ASSERT_GT(server->next_deadline(), now);
  }
  char byte = 0;
  EXPECT_EQ(recv(silent->descriptor(), &byte, 1, MSG_DONTWAIT), 0) << "it is not closed";
}

}  // namespace
