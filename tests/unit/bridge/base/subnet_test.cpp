#include "bridge/base/subnet.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(Subnet, ContainsAddressesOfItsPrefix) {
  struct Case {
    const char *subnet, *address;
    bool inside;
  };
  for (const Case& c : {Case{"10.1.0.0/16", "10.1.255.3", true},
                        {"10.1.0.0/16", "10.2.0.1", false},
                        {"10.1.2.3/16", "10.1.9.9", true},
                        {"10.1.128.0/17", "10.1.127.255", false},
                        {"10.1.128.0/17", "10.1.128.0", true},
                        {"192.0.2.7/32", "192.0.2.7", true},
                        {"192.0.2.7/32", "192.0.2.6", false},
                        {"0.0.0.0/0", "203.0.113.9", true},
                        {"0.0.0.0/0", "fd00::1", false},
                        {"fd00::/8", "fdff::1", true},
                        {"fd00::/8", "fe80::1", false},
                        {"2001:db8::1/128", "2001:db8::1", true},
                        {"10.1.0.0/16", "no address", false}}) {
    const auto subnet = Subnet::parse(c.subnet);
    ASSERT_TRUE(subnet) << subnet.error().message;
    EXPECT_EQ(subnet->contains(c.address), c.inside) << c.subnet << " " << c.address;
  }
}

TEST(Subnet, RejectsMalformedSubnets) {
  for (const char* text : {"", "/", "10.1.0.0", "10.1.0.0/", "10.1.0.0/33", "10.1.0.0/-1",
                           "10.1.0/16", "fd00::/129", "ib0/8", "10.1.0.0/8/8"}) {
    const auto subnet = Subnet::parse(text);
    ASSERT_FALSE(subnet) << text;
    EXPECT_NE(subnet.error().message.find("'" + std::string(text) + "'"), std::string::npos)
        << subnet.error().message;
  }
}

}  // namespace
}  // namespace torchbridge
