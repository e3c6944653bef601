#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
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

// A store in which a stranger changes what ranks set, before any rank can read it.
class StoreBesideStranger : public c10d::HashStore {
 public:
  using Change = std::function<void(const std::string& key, std::string& value)>;
  explicit StoreBesideStranger(Change change) : change_(std::move(change)) {}
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    std::string changed(value.begin(), value.end());
    change_(key, changed);
    c10d::HashStore::set(key, {changed.begin(), changed.end()});
  }

 private:
  const Change change_;
};

// Joins, waits for the others at a barrier, and leaves. Its error, "" without one, or "(another
// rank reports)".
std::string error_of_rank(int rank, int world_size, std::chrono::milliseconds heartbeat_timeout,
                          const c10::intrusive_ptr<c10d::Store>& store) {
  Launch launch;
  launch.env.layout = {
      .rank = rank, .world_size = world_size, .local_rank = rank, .local_world_size = world_size};
  GroupOptions options{
      .init_method = {.kind = InitMethod::Kind::kStore, .endpoint = {}, .path = {}, .ranks = {}},
      .heartbeat_timeout = heartbeat_timeout};
  try {
    ProcessGroup group(std::move(launch), options, store);
    try {
      group.barrier();
      group.leave();
      return "";
    } catch (const std::exception& error) {
      return group.message_for(error).value_or("(another rank reports)");
    }
  } catch (const PeerFailed&) {
    return "(another rank reports)";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Each begins after `before`.
std::vector<std::string> errors_of_ranks(
    int world_size, std::chrono::milliseconds heartbeat_timeout,
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::function<void(int)>& before = [](int) {}) {
  std::vector<std::string> errors(world_size);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      before(rank);
      errors[rank] = error_of_rank(rank, world_size, heartbeat_timeout, store);
    });
  }
  ranks.clear();
  return errors;
}

constexpr std::chrono::milliseconds kTimeouts[] = {std::chrono::seconds(20),
                                                   std::chrono::milliseconds(0)};

// He answers as rank 0's would, and could go on for the whole run.
TEST(ChangedStore, AnotherHeartbeatThanThatOfRankZeroIsAnErrorOfTheRankThatUsesIt) {
  for (const auto timeout : kTimeouts) {
    const auto other =
        Heartbeat::serve("127.0.0.1", 2, {.timeout = timeout, .token = "other", .on_loss = [] {}});
    ASSERT_TRUE(other);
    const std::string server = "other 127.0.0.1 " + std::to_string((*other)->endpoint().port);
    const auto store =
        c10::make_intrusive<StoreBesideStranger>([&](const std::string& key, std::string& value) {
          if (key.ends_with("/heartbeat")) value = server;
        });
    const auto errors = errors_of_ranks(2, timeout, store);
    EXPECT_EQ(errors[1],
              "the store's key heartbeat is not what rank 0 has set: another program has changed "
              "it");
    EXPECT_EQ(errors[0], "(another rank reports)");
  }
}

TEST(ChangedStore, AnotherHeartbeatTimeoutThanThatOfRankZeroIsAnError) {
  const auto store =
      c10::make_intrusive<StoreBesideStranger>([](const std::string& key, std::string& value) {
        if (key.ends_with("/heartbeat_timeout")) value = "0";
      });
  const auto errors = errors_of_ranks(2, std::chrono::seconds(20), store);
  EXPECT_EQ(errors[1],
            "the store's key heartbeat_timeout is not what rank 0 has set: another program has "
            "changed it");
}

// He has read the token, and was faster; rank 2 keeps rank 0 listening until rank 1 has connected.
TEST(ChangedStore, AHeartbeatConnectionThatAnotherProgramHasTakenIsAnErrorOfItsRank) {
  constexpr std::chrono::milliseconds kNever{0};  // else the rank may end earlier, with a loss
  std::unique_ptr<Heartbeat> other;
  std::promise<void> rank_1_is_here;
  const auto take_its_connection = [&](const std::string& key, std::string& value) {
    if (key.ends_with("/joined/1")) rank_1_is_here.set_value();
    if (!key.ends_with("/heartbeat")) return;
    std::istringstream words(value);
    std::string token, host;
    int port = 0;
    words >> token >> host >> port;
    other = std::move(*Heartbeat::join({host, port}, 1, {.timeout = kNever, .token = token}));
    EXPECT_TRUE(other->wait_until_accepted());
  };
  const auto store = c10::make_intrusive<StoreBesideStranger>(take_its_connection);
  const auto errors = errors_of_ranks(3, kNever, store, [&](int rank) {
    if (rank == 2) rank_1_is_here.get_future().wait();
  });
  EXPECT_EQ(errors[1],
            "the heartbeat of rank 0 has not accepted this rank's connection: another program has "
            "connected in its place");
}

TEST(ChangedStore, AStoreThatNobodyChangesIsNoError) {
  for (const auto timeout : kTimeouts) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    EXPECT_EQ(errors_of_ranks(3, timeout, store), std::vector<std::string>(3));
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
