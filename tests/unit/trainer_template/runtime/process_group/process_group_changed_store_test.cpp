#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torchbridge/group_options.h>
#include <torchbridge/process_group.h>

#include "temporary_folder.h"
#include "trainer_template/runtime/process_group/heartbeat.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

using Values = std::map<std::string, std::string>;

// Whoever reaches the store can change it. What rank 1 of 2 throws at one in which rank 0 has set
// these values.
std::string error_with(const Values& changed) {
  const auto server =
      Heartbeat::serve("127.0.0.1", 2, {.timeout = std::chrono::milliseconds(0), .token = "token"});
  Values values = {{"world size/0", "2"},
                   {"heartbeat_timeout", "0"},
                   {"heartbeat", "token 127.0.0.1 " + std::to_string((*server)->endpoint().port)},
                   {"backend/0", "gloo"}};
  for (const auto& [name, value] : changed) values[name] = value;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  c10d::PrefixStore of_run("torchbridge/none/0", store);
  for (const auto& [name, value] : values) put(of_run, name, value);
  Launch launch;
  launch.env.layout = {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2};
  GroupOptions options{
      .backend = "gloo",
      .init_method = {.kind = InitMethod::Kind::kStore, .endpoint = {}, .path = {}, .ranks = {}},
      .join_timeout = std::chrono::seconds(20)};
  return error_of([&] { ProcessGroup group(std::move(launch), options, store); });
}

// Each is followed by what is wrong, and printed without a control character.
const std::string kHostile[] = {
    "", " ", "x", "\x1b[2J", "99999999999999999999", "-1", "1 1", std::string(1 << 20, '9')};

void expect_error(const std::string& error, const std::string& expected) {
  EXPECT_TRUE(contains(error, expected));
  EXPECT_LT(error.size(), 1000u) << "a long value is not cut";
  EXPECT_FALSE(std::ranges::any_of(error, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }))
      << error;
}

TEST(ChangedStore, AHeartbeatTimeoutThatIsNoNumberIsAnError) {
  for (const std::string& value : kHostile) {
    expect_error(
        error_with({{"heartbeat_timeout", value}}),
        "the store's key heartbeat_timeout is '" + value.substr(0, value == "\x1b[2J" ? 0 : 20));
  }
}

TEST(ChangedStore, AHeartbeatServerWithoutTokenAddressAndPortIsAnError) {
  for (const std::string port : {"0", "-1", "65536", "4294967377", "x", ""}) {
    expect_error(
        error_with({{"heartbeat_timeout", "4000"}, {"heartbeat", "token 127.0.0.1 " + port}}),
        "the store's key heartbeat is 'token 127.0.0.1 ");
  }
  for (const std::string value : {"", "token", "token \x1b[2J 1", "token localhost 1", "a b c d"}) {
    expect_error(error_with({{"heartbeat_timeout", "4000"}, {"heartbeat", value}}),
                 "the store's key heartbeat is '");
  }
}

TEST(ChangedStore, AWorldSizeOrBackendOfNoRankIsNamed) {
  for (const std::string& value : kHostile) {
    expect_error(error_with({{"world size/0", value}}),
                 "the world size is 2 here (WORLD_SIZE) and ");
    expect_error(error_with({{"backend/0", value}}), "the backend is gloo here and ");
  }
}

TEST(ChangedStore, ALocationThatIsNoneIsAnError) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (const std::string value :
       {"", "x", "0 0", "0 0 1", "-1 0 1 n0", "0 -2147483648 1 n0", "0 1 1 n0", "0 0 0 n0",
        "0 0 2147483647 n0", "99999999999 0 1 n0", "\x1b[2J"}) {
    put(*store, key("joined", 3), value);
    expect_error(error_of([&] { locations_of(*store, {3}); }), "the store's key joined/3 is '");
  }
  put(*store, key("joined", 3), "0 0 1 \x1b[2J");
  EXPECT_EQ(locations_of(*store, {3})[0].host, "\\x1b[2J");
}

}  // namespace
}  // namespace torchbridge::train
