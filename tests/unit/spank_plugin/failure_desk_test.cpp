#include "spank_plugin/failure_desk.h"

#include <sys/socket.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

DeskAddress address_of(const FailureDesk& desk) {
  const EnvMap environment = {{DeskAddress::kVariable, desk.variable()}, {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"}};
  return DeskAddress::from(environment).value_or(DeskAddress());
}

const std::chrono::system_clock::time_point kNow{std::chrono::seconds(1'700'000'000)};

TEST(FailureDesk, KeepsWhoFailedFirst) {
  const auto desk = FailureDesk::open();
  ASSERT_TRUE(desk) << desk.error().message;
  ASSERT_TRUE(tell_desk(address_of(*desk), kNow, "rank 2"));
  ASSERT_TRUE(tell_desk(address_of(*desk), kNow - std::chrono::microseconds(1), "rank 3\nreason"));
  ASSERT_TRUE(tell_desk(address_of(*desk), kNow + std::chrono::milliseconds(1), "rank 1"));
  EXPECT_EQ(desk->first_report(), "rank 3\nreason");
}

TEST(FailureDesk, HasNothingToSayWhereNobodyCame) {
  const auto desk = FailureDesk::open();
  ASSERT_TRUE(desk) << desk.error().message;
  EXPECT_EQ(desk->first_report(), std::nullopt);
}

TEST(FailureDesk, IgnoresStrangers) {
  const auto desk = FailureDesk::open();
  ASSERT_TRUE(desk) << desk.error().message;
  DeskAddress wrong = address_of(*desk);
  wrong.token.back() = wrong.token.back() == '0' ? '1' : '0';
  ASSERT_TRUE(tell_desk(wrong, kNow - std::chrono::hours(1), "a lie"));
  { const auto silent = connect_to({wrong.host, wrong.port}, std::chrono::seconds(1)); }
  ASSERT_TRUE(tell_desk(address_of(*desk), kNow, "the truth"));
  EXPECT_EQ(desk->first_report(), "the truth");
}

TEST(FailureDesk, IsNotFoundByHalfAnAddress) {
  const std::string token(32, 'a');
  for (const char* value : {"", "80", "80 ", "80 short", "0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "x aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    EXPECT_FALSE(DeskAddress::from({{DeskAddress::kVariable, value}, {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"}})) << value;
  }
  EXPECT_FALSE(DeskAddress::from({{DeskAddress::kVariable, "80 " + token}}));
  EXPECT_TRUE(DeskAddress::from({{DeskAddress::kVariable, "80 " + token}, {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"}}));
}

}  // namespace
}  // namespace torchbridge
