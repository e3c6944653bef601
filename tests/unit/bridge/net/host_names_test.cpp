#include "bridge/net/host_names.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Addresses = std::vector<std::string>;

TEST(HostNames, ANumericAddressGivesItself) {
  for (const auto& names : {HostNames(), HostNames::look_up({})}) {
    EXPECT_EQ(*names.addresses_of("10.0.0.1"), Addresses{"10.0.0.1"});
    EXPECT_EQ(*names.addresses_of("FD00::0001"), Addresses{"fd00::1"});
  }
}

TEST(HostNames, KnowsOnlyWhatItWasAskedFor) {
  const auto names = HostNames::look_up({"localhost", "no-such-host.invalid"});
  ASSERT_TRUE(names.addresses_of("localhost"));
  EXPECT_EQ(names.addresses_of("localhost")->size(), HostNames().addresses_of("localhost")->size());
  EXPECT_NE(names.addresses_of("no-such-host.invalid").error().message.find("does not resolve on"),
            std::string::npos);
  EXPECT_NE(names.addresses_of("ip6-localhost").error().message.find("was not known before"),
            std::string::npos);
}

TEST(HostNames, IsTheSameAfterItsText) {
  auto names = HostNames::look_up({"localhost", "no-such-host.invalid"});
  names.add_alias("n7", "10.0.0.7");
  names.add_alias("n8", "no-such-host.invalid");
  const auto copy = HostNames::from(names.text());
  EXPECT_EQ(copy.text(), names.text());
  EXPECT_EQ(*copy.addresses_of("n7"), Addresses{"10.0.0.7"});
  EXPECT_FALSE(copy.addresses_of("n8"));
  EXPECT_EQ(copy.addresses_of("no-such-host.invalid").error().message,
            names.addresses_of("no-such-host.invalid").error().message);
}

TEST(HostNames, LeavesOutLinesOfAnotherForm) {
  const auto names = HostNames::from("n0 10.0.0.1 x 10.0.0.2\nn1\n\nn2 n3\nn4 !down");
  EXPECT_EQ(*names.addresses_of("n0"), (Addresses{"10.0.0.1", "10.0.0.2"}));
  for (const char* name : {"n1", "n2", "n3"})
    EXPECT_NE(names.addresses_of(name).error().message.find("was not known"), std::string::npos)
        << name;
  EXPECT_EQ(names.addresses_of("n4").error().message, "down");
}

}  // namespace
}  // namespace torchbridge
