#include "bridge/net/address.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(Address, OfANumberIsItself) {
  EXPECT_EQ(*numeric_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(*numeric_address("::1"), "::1");
}

TEST(Address, OfAnUnknownNameNamesIt) {
  const auto address = numeric_address("no-such-host.invalid");
  ASSERT_FALSE(address);
  EXPECT_NE(address.error().message.find("'no-such-host.invalid' does not resolve"),
            std::string::npos)
      << address.error().message;
}

TEST(Address, DistinguishesNumbersFromNames) {
  for (const char* number : {"10.0.0.1", "::1", "fd00::2"})
    EXPECT_TRUE(is_numeric(number)) << number;
  for (const char* name : {"", "n0", "10.0.0", "10.0.0.1:80", "[::1]"})
    EXPECT_FALSE(is_numeric(name)) << name;
}

TEST(Address, KnowsLoopback) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.127.0.1"));
}

TEST(Address, KnowsNamesByWhichEachHostMeansItself) {
  for (const char* host : {"localhost", "LOCALHOST", "localhost.localdomain", "localhost4",
                           "ip6-localhost", "127.0.0.1", "127.1", "::1", "0.0.0.0", "0", "::"})
    EXPECT_TRUE(names_loopback(host)) << host;
  for (const char* host : {"n0", "localhosts", "local", "10.1", "10.127.0.1", "fd00::1", ""})
    EXPECT_FALSE(names_loopback(host)) << host;
}

TEST(Address, IsReadInDigitsAlsoInTheResolversShortForms) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0.0.0.0"}, {"127.1", "127.0.0.1"}, {"10.1.0.5", "10.1.0.5"},
      {"::", "::"},     {"0::1", "::1"},        {"n0", ""},
  };
  for (const auto& [text, address] : cases) EXPECT_EQ(address_in_digits(text), address) << text;
}

TEST(Address, ForOthersIsOfAFamilyThatTheyAndThisHostReach) {
  EXPECT_EQ(any_address_for_others("::1"), "::");
  const auto own = local_addresses();
  EXPECT_EQ(any_address_for_others("127.0.0.1"),
            any_address_like(own.empty() ? "127.0.0.1" : own.front()));
}

TEST(Address, LocalOnesAreNeverLoopback) {
  for (const auto& address : local_addresses()) EXPECT_FALSE(is_loopback(address)) << address;
}

TEST(AddressTowards, IsThatOfTheSameNetwork) {
  EXPECT_EQ(*address_towards("127.0.0.1", false), "127.0.0.1");
  for (const auto& address : local_addresses()) EXPECT_EQ(*address_towards(address, true), address);
}

TEST(AddressTowards, RejectsNames) { EXPECT_FALSE(address_towards("nowhere", false)); }

TEST(IsOwnAddress, CountsLoopback) {
  EXPECT_TRUE(is_own_address("127.0.1.1"));
  EXPECT_FALSE(is_own_address("192.0.2.1"));
  for (const char* any : {"0.0.0.0", "::"}) {
    EXPECT_TRUE(is_own_address(any));
    EXPECT_TRUE(is_loopback(loopback_like(any)));
  }
  for (const auto& address : local_addresses()) EXPECT_TRUE(is_own_address(address)) << address;
}

TEST(OwnAddress, FollowsTheRule) {
  using Kind = AddressRule::Kind;
  EXPECT_EQ(*own_address({Kind::kInterface, "lo"}), "127.0.0.1");
  EXPECT_EQ(*own_address({Kind::kSubnet, "127.0.0.0/8"}), "127.0.0.1");
  EXPECT_EQ(*own_address({Kind::kHost, "127.0.0.9"}), "127.0.0.9");
}

TEST(OwnAddress, ErrorListsTheAddressesOfTheHost) {
  using Kind = AddressRule::Kind;
  for (const AddressRule& rule :
       {AddressRule{Kind::kInterface, "none7"}, AddressRule{Kind::kSubnet, "203.0.113.0/24"}}) {
    const auto address = own_address(rule);
    ASSERT_FALSE(address);
    EXPECT_NE(address.error().message.find(rule.text), std::string::npos)
        << address.error().message;
    EXPECT_NE(address.error().message.find("lo 127.0.0.1"), std::string::npos)
        << address.error().message;
  }
}

TEST(Interface, TowardsLoopbackIsLoopback) {
  EXPECT_EQ(interface_towards("127.0.0.1"), "lo");
  EXPECT_EQ(interface_towards("no-number"), "");
  for (const auto& address : local_addresses())
    EXPECT_NE(interface_towards(address), "") << address;
}

TEST(EphemeralPorts, AreARange) {
  const PortRange range = ephemeral_ports();
  EXPECT_LE(range.low, range.high);
  EXPECT_GE(range.low, 1);
}

}  // namespace
}  // namespace torchbridge
