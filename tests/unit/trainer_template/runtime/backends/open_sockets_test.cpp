#include "trainer_template/runtime/backends/open_sockets.h"

#include <gtest/gtest.h>

#include "bridge/net/socket.h"

namespace torchbridge::train {
namespace {

TEST(NewListeners, NamesTheInterfacesOfListenersThatAreNewer) {
  const auto older = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(older);
  const NewListeners listeners;
  EXPECT_EQ(listeners.interfaces(), std::set<std::string>());
  const auto everywhere = listen_on({"0.0.0.0", 0});
  ASSERT_TRUE(everywhere);
  EXPECT_EQ(listeners.interfaces(), std::set<std::string>());
  const auto own = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(own);
  EXPECT_EQ(listeners.interfaces(), std::set<std::string>({"lo"}));
}

}  // namespace
}  // namespace torchbridge::train
