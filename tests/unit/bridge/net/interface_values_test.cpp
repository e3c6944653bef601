#include "bridge/net/interface_values.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

std::string error_of(const EnvMap& environment, bool several_nodes) {
  const UsableInterfaces usable = several_nodes
                                      ? UsableInterfaces{{"eth0", "ib0"}, true, "n1"}
                                      : UsableInterfaces{{"lo", "eth0", "ib0"}, false, "n1"};
  const auto checked = check_interface_variables(environment, usable);
  return checked ? "" : checked.error().message;
}

TEST(InterfaceValues, AreNamesOfInterfacesThatTheOtherNodesReach) {
  const std::string rest =
      " has no such interface that other nodes can reach; it has eth0, ib0: unset it";
  for (const char* good : {"", "eth0", "ib0", "eth0,ib0"})
    EXPECT_EQ(error_of({{"GLOO_SOCKET_IFNAME", good}}, true), "");
  EXPECT_EQ(error_of({}, true), "");
  EXPECT_EQ(error_of({{"GLOO_SOCKET_IFNAME", "lo"}}, true), "GLOO_SOCKET_IFNAME='lo': n1" + rest);
  EXPECT_EQ(error_of({{"GLOO_SOCKET_IFNAME", "eth0,eth"}}, true),
            "GLOO_SOCKET_IFNAME='eth': n1" + rest);
  EXPECT_EQ(error_of({{"GLOO_SOCKET_IFNAME", "lo"}}, false), "");
  EXPECT_EQ(error_of({{"GLOO_SOCKET_IFNAME", "eth9"}}, false),
            "GLOO_SOCKET_IFNAME='eth9': n1 has no such interface; it has lo, eth0, ib0: unset it");
  EXPECT_EQ(check_interface("iface=eth0", "eth0", {{}, true, "n1"}).error().message,
            "iface=eth0: n1 has no such interface that other nodes can reach; it has none");
}

TEST(InterfaceValues, OfNcclAreBeginningsOfNamesOrNamesToLeaveOut) {
  for (const char* good :
       {"", "eth", "=eth0", "=eth1,ib0", "^lo", "^lo,docker", "^=eth0", "ib0:7000"})
    EXPECT_EQ(error_of({{"NCCL_SOCKET_IFNAME", good}}, true), "") << good;
  for (const char* bad : {"lo", "=eth", "ens,lo", "^eth,ib"}) {
    EXPECT_EQ(
        error_of({{"NCCL_SOCKET_IFNAME", bad}}, true),
        "NCCL_SOCKET_IFNAME='" + std::string(bad) +
            "': n1 has no such interface that other nodes can reach; it has eth0, ib0: unset it");
    EXPECT_EQ(error_of({{"NCCL_SOCKET_IFNAME", bad}}, false), "");
  }
}

}  // namespace
}  // namespace torchbridge
