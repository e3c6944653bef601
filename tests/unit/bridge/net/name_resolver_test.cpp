#include "bridge/net/name_resolver.h"

#include <poll.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

// Waits for its event.
Result<std::string> address_of(const NameResolver& resolver, const std::string& name) {
  while (true) {
    if (auto address = resolver.find(name)) return *address;
    pollfd event{resolver.event(), POLLIN, 0};
    if (poll(&event, 1, 20'000) <= 0) return Error{"no event"};
    resolver.clear_event();
  }
}

TEST(NameResolver, FindsAddressesAndReportsMissingOnes) {
  NameResolver resolver;
  EXPECT_FALSE(resolver.find("localhost"));
  resolver.start({"no-such-host.invalid", "localhost"});
  const auto unknown = address_of(resolver, "no-such-host.invalid");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("'no-such-host.invalid' does not resolve"),
            std::string::npos)
      << unknown.error().message;
  const auto known = address_of(resolver, "localhost");
  ASSERT_TRUE(known) << known.error().message;
  EXPECT_TRUE(*known == "127.0.0.1" || *known == "::1") << *known;
  EXPECT_FALSE(resolver.find("never-asked"));
}

}  // namespace
}  // namespace torchbridge
