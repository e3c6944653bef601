#include "trainer_template/runtime/process_group/failure_report.h"

#include <algorithm>
#include <string_view>
#include <thread>

#include <c10/util/Exception.h>

#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/base/env_map.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"
#include "trainer_template/runtime/tensors/error_text.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"
#include "trainer_template/runtime/rendezvous/store_probe.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// How long the rank that speaks for a broken group collects who is still there.
constexpr milliseconds kCollect{1000};
// Until others on its node have noticed too that the store is gone.
constexpr milliseconds kStragglers{300};

bool is_timeout(std::string_view text) {
  return text.find("imed out") != std::string_view::npos || text.find("imeout") != std::string_view::npos;
}

bool is_of_gloo(const std::exception& error) {
  return std::string_view(error.what()).find("gloo") != std::string_view::npos;
}

// Rank 0 may serve the store, which the others need until they have spoken.
void linger(c10d::Store& store, int world_size) {
  std::vector<int> alive = all_ranks(world_size);
  for (int gone : missing_after(store, "ended", alive, kCollect)) std::erase(alive, gone);
  missing_after(store, "done", alive, 2 * kCollect);
}

bool contains(const std::vector<int>& ranks, int rank) { return std::ranges::count(ranks, rank) > 0; }

// "rank 1 on n0", "ranks 1,2 on n0, n1". Of rank 0, with which the store is gone, the host is known without it.
std::string with_hosts(const BrokenGroup& group, const std::vector<int>& ranks) {
  constexpr std::size_t kAsked = 8;
  const bool store_lives = !contains(ranks, 0) || !group.join_result.served_by_rank_0;
  std::vector<std::string> hosts;
  if (!store_lives) hosts.push_back(group.join_result.first_host);
  const std::size_t asked = store_lives ? std::min(ranks.size(), kAsked) : 0;
  for (const RankLocation& place :
       locations_of(group.store, {ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(asked)})) {
    if (std::ranges::count(hosts, place.host) == 0) hosts.push_back(place.host);
  }
  std::string text = list_of(ranks);
  for (std::size_t i = 0; i < hosts.size(); ++i) text += (i == 0 ? " on " : ", ") + hosts[i];
  return text;
}

// All have ended: those that had waited less than half as long as the longest came when the others had given up.
std::vector<int> late_ranks(const BrokenGroup& group) {
  std::vector<std::string> keys;
  for (int rank : all_ranks(group.world_size)) keys.push_back(key("ended", rank));
  std::vector<std::int64_t> waited;
  for (const auto& bytes : group.store.multiGet(keys)) {
    waited.push_back(parse_integer(std::string(bytes.begin(), bytes.end()), 0, INT64_MAX).value_or(0));
  }
  const std::int64_t longest = std::ranges::max(waited);
  std::vector<int> late = all_ranks(group.world_size);
  std::erase_if(late, [&](int rank) { return waited[rank] >= longest / 2; });
  return late;
}

std::string missing_ranks_error(const std::string& who) {
  return who + " did not take part in a collective in time: stopped, stuck, or its node hangs";
}
std::string was_lost(const std::string& who) {
  return "the connection to " + who + " was lost: killed, crashed, or its node is unreachable";
}

std::string loss(const BrokenGroup& group, const std::vector<int>& missing, const std::exception& error) {
  const bool late = is_timeout(error.what());
  if (!missing.empty()) return late ? missing_ranks_error(with_hosts(group, missing)) : was_lost(with_hosts(group, missing));
  if (late) {
    const std::vector<int> behind = late_ranks(group);
    if (behind.empty()) return missing_ranks_error("another rank");
    return with_hosts(group, behind) +
           " came to a collective when the others had given up: slow, stopped for a while, or in another part of the "
           "program";
  }
  // All are there, and the backend knows more than that something was lost.
  return is_of_gloo(error) ? was_lost("another rank") : one_line(error);
}

// Rank 0 is gone, and the store with it: of those on one node the first to ask speaks.
std::optional<std::string> loss_of_store(const BrokenGroup& group, StoreAnswer answer, const std::exception& error) {
  if (!group.join_result.served_by_rank_0)
    return group.rank == 1 ? std::optional(was_lost("another rank")) : std::nullopt;
  if (contains(group.aborted_ranks, 0) || host_name() != group.join_result.speaking_host) return std::nullopt;
  const Endpoint& store = *group.join_result.served_by_rank_0;
  if (!hold_name("lost/" + store.host + "/" + std::to_string(store.port))) return std::nullopt;
  std::this_thread::sleep_for(kStragglers);
  const std::string who = with_hosts(group, {0});
  if (answer != StoreAnswer::kForeign) return was_lost(who);
  return is_timeout(error.what()) ? missing_ranks_error(who) : who + " does not answer: process stopped or node hung";
}

std::optional<std::string> heartbeat_message(const BrokenGroup& group) {
  int speaker = 0;
  while (contains(group.lost, speaker)) ++speaker;
  if (group.rank != speaker) return std::nullopt;
  return with_hosts(group, group.lost) + " sent no heartbeat for " + seconds(group.heartbeat_timeout) +
         ": process stopped or node hung";
}

// Each says that it has ended, one of those that lost a connection collects who has not.
std::optional<std::string> agree_on_loss(const BrokenGroup& group, const std::exception& error) {
  const bool all_others_left = std::ssize(group.aborted_ranks) == group.world_size - 1;
  if (all_others_left || group.store.add("reporters", 1) != 1) return std::nullopt;
  // Those that are alive notice within milliseconds, for their connections to this rank are cut.
  const std::vector<int> missing = missing_after(group.store, "ended", all_ranks(group.world_size), kCollect);
  if (missing.empty() && group.store.check({"own trouble"})) return std::nullopt;
  return loss(group, missing, error);
}

// A rank with trouble of its own tells it, and where several have the same, the first one.
std::optional<std::string> agree_on_trouble(c10d::Store& store, const std::string& message) {
  put(store, "own trouble", "yes");
  return store.add("trouble/" + message, 1) > 1 ? std::nullopt : std::optional(message);
}

// TCPStore waits without end for the answer of a rank 0 that is stopped.
StoreAnswer store_of(const BrokenGroup& group) {
  if (group.rank == 0 || !group.join_result.served_by_rank_0) return StoreAnswer::kReady;
  return wait_for_store(*group.join_result.served_by_rank_0, kCollect).answer;
}

}  // namespace

bool is_lost_connection(const std::exception& error) {
  if (dynamic_cast<const TrainError*>(&error)) return false;
  if (dynamic_cast<const c10::DistError*>(&error)) return true;
  return is_of_gloo(error);
}

std::optional<std::string> failure_message(const BrokenGroup& group, const std::exception& error) {
  const bool silent = dynamic_cast<const PeerFailed*>(&error) != nullptr;
  const bool own = dynamic_cast<const TrainError*>(&error) != nullptr;
  const bool lost = is_lost_connection(error) || (!group.lost.empty() && !own && !silent);
  std::optional<std::string> message;
  if (!lost && !silent) message = one_line(error);
  const bool was_given_up = contains(group.lost, group.rank);
  if (was_given_up) return message;
  StoreAnswer answer = StoreAnswer::kNobody;
  try {
    if (!group.lost.empty() && !group.hung_up && !message) return heartbeat_message(group);
    answer = store_of(group);
    if (answer != StoreAnswer::kReady) throw std::runtime_error("no store");
    c10d::Store& store = group.store;
    store.setTimeout(kCollect);
    put(store, key("ended", group.rank), std::to_string(group.waited.count()));
    if (message)
      message = agree_on_trouble(store, *message);
    else if (lost)
      message = agree_on_loss(group, error);
    put(store, key("done", group.rank), "yes");
    if (group.rank == 0) linger(store, group.world_size);
  } catch (const std::exception&) {
    if (lost && !message) message = loss_of_store(group, answer, error);
  }
  return message;
}

}  // namespace torchbridge::train
