#include "trainer_template/runtime/process_group/failure_report.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <thread>

#include <c10/util/Exception.h>

#include "bridge/base/env_map.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"
#include "trainer_template/runtime/rendezvous/store_probe.h"
#include "trainer_template/runtime/tensors/error_text.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// How long the reporter of a broken group waits for the ranks that are left.
constexpr milliseconds kCollect{1000};
// Until the other ranks of this node have noticed too that the store is lost.
constexpr milliseconds kStragglers{300};

// Set by a rank whose own error is the cause.
constexpr const char* kOwnError = "own error";
// "ended" of a rank that is lost, set by rank 0 so that no rank waits for it; else milliseconds that the rank waited.
constexpr const char* kGone = "gone";

bool is_timeout(std::string_view text) {
  return text.find("imed out") != std::string_view::npos || text.find("imeout") != std::string_view::npos;
}

bool is_of_gloo(const std::exception& error) {
  return std::string_view(error.what()).find("gloo") != std::string_view::npos;
}

std::vector<std::string> values_of(c10d::Store& store, const char* name, const std::vector<int>& ranks) {
  std::vector<std::string> keys, values;
  for (const int rank : ranks) keys.push_back(key(name, rank));
  if (keys.empty()) return values;
  for (const auto& bytes : store.multiGet(keys)) values.emplace_back(bytes.begin(), bytes.end());
  return values;
}

// The ranks that do not set "ended" in time, or never will.
std::vector<int> wait_for_ends(c10d::Store& store, int world_size) {
  std::vector<int> missing = missing_after(store, "ended", all_ranks(world_size), kCollect), arrived;
  std::ranges::set_difference(all_ranks(world_size), missing, std::back_inserter(arrived));
  const auto values = values_of(store, "ended", arrived);
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    if (values[i] == kGone) missing.push_back(arrived[i]);
  }
  std::ranges::sort(missing);
  return missing;
}

// Rank 0 may serve the store, which the others need until they have reported.
void wait_for_reports(c10d::Store& store, int world_size) {
  std::vector<int> alive = all_ranks(world_size);
  for (int lost : wait_for_ends(store, world_size)) std::erase(alive, lost);
  missing_after(store, "done", alive, 2 * kCollect);
}

bool contains(const std::vector<int>& ranks, int rank) { return std::ranges::count(ranks, rank) > 0; }

// REQUIRES: all ranks have set "ended". Those that waited less than half as long as the longest reached the collective
// after the others had timed out.
std::vector<int> late_ranks(const BrokenGroup& group) {
  std::vector<std::int64_t> waited;
  for (const std::string& value : values_of(group.store, "ended", all_ranks(group.world_size))) {
    waited.push_back(parse_integer(value, 0, INT64_MAX).value_or(0));
  }
  const std::int64_t longest = std::ranges::max(waited);
  std::vector<int> late = all_ranks(group.world_size);
  std::erase_if(late, [&](int rank) { return waited[rank] >= longest / 2; });
  return late;
}

std::string missing_ranks_error(const std::string& who) {
  return who + " did not take part in a collective in time: process stopped or stuck, or node hung";
}

std::string loss_error(const BrokenGroup& group, const std::vector<int>& missing, const std::exception& error) {
  const bool is_late = is_timeout(error.what());
  if (!missing.empty()) {
    const std::string who = with_hosts(group, missing);
    return is_late ? missing_ranks_error(who) : lost_connection_error(who);
  }
  if (is_late) {
    const std::vector<int> behind = late_ranks(group);
    if (behind.empty()) return missing_ranks_error("another rank");
    return with_hosts(group, behind) +
           " reached a collective after the other ranks had timed out: slow, stopped for a while, or in another part "
           "of the program";
  }
  // No rank is missing. The error of a backend other than gloo has more than the loss of a connection in its text.
  return is_of_gloo(error) ? lost_connection_error("another rank") : one_line(error);
}

// The store is lost with rank 0: of the ranks on the reporter's node the first to take the name reports it.
std::optional<std::string> store_loss_message(const BrokenGroup& group, StoreAnswer answer,
                                              const std::exception& error) {
  if (!group.join_result.served_by_rank_0)
    return group.rank == 1 ? std::optional(lost_connection_error("another rank")) : std::nullopt;
  if (contains(group.aborted_ranks, 0) || host_name() != group.join_result.reporter_host) return std::nullopt;
  const Endpoint& store = *group.join_result.served_by_rank_0;
  if (!hold_name("lost/" + store.host + "/" + std::to_string(store.port))) return std::nullopt;
  std::this_thread::sleep_for(kStragglers);
  const std::string who = with_hosts(group, {0});
  if (answer != StoreAnswer::kNoAnswer) return lost_connection_error(who);
  return is_timeout(error.what()) ? missing_ranks_error(who) : who + " does not answer: process stopped or node hung";
}

std::optional<std::string> heartbeat_message(const BrokenGroup& group) {
  int reporter = 0;  // the lowest rank that is left
  while (contains(group.lost, reporter)) ++reporter;
  if (group.rank != reporter) return std::nullopt;
  return no_heartbeat_error(with_hosts(group, group.lost), group.heartbeat_timeout);
}

// Every rank that is left sets "ended"; the first that lost a connection reports the ranks that have not set it.
std::optional<std::string> report_loss(const BrokenGroup& group, const std::exception& error) {
  const bool all_others_aborted = std::ssize(group.aborted_ranks) == group.world_size - 1;
  if (all_others_aborted || group.store.add("reporters", 1) != 1) return std::nullopt;
  // The ranks that are left notice within milliseconds, for this rank has closed its connections to them.
  const std::vector<int> missing = wait_for_ends(group.store, group.world_size);
  if (missing.empty() && group.store.check({kOwnError})) return std::nullopt;
  return loss_error(group, missing, error);
}

// Not of a rank that has ended in order, as one whose abort watchdog ended it after its message.
void publish_closed(const BrokenGroup& group) {
  for (const int rank : group.closed) {
    if (!group.store.check({key("ended", rank)})) put(group.store, key("ended", rank), kGone);
  }
}

// A rank with an error of its own reports it; where several ranks have the same error, the first one does.
std::optional<std::string> report_own_error(c10d::Store& store, const std::string& message) {
  put(store, kOwnError, "yes");
  return store.add("error/" + message, 1) > 1 ? std::nullopt : std::optional(message);
}

// First, because TCPStore waits forever for the answer of a rank 0 that is stopped.
StoreAnswer probe_store(const BrokenGroup& group) {
  if (group.rank == 0 || !group.join_result.served_by_rank_0) return StoreAnswer::kReady;
  return wait_for_store(*group.join_result.served_by_rank_0, kCollect).answer;
}

}  // namespace

std::string with_hosts(const BrokenGroup& group, const std::vector<int>& ranks) {
  constexpr std::size_t kMostHosts = 8;
  const bool has_store = !contains(ranks, 0) || !group.join_result.served_by_rank_0;
  std::vector<std::string> hosts;
  if (!has_store) hosts.push_back(group.join_result.rank_0_host);
  const std::size_t count = has_store ? std::min(ranks.size(), kMostHosts) : 0;
  for (const RankLocation& location :
       locations_of(group.store, {ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count)})) {
    if (std::ranges::count(hosts, location.host) == 0) hosts.push_back(location.host);
  }
  std::string text = list_of(ranks);
  for (std::size_t i = 0; i < hosts.size(); ++i) text += (i == 0 ? " on " : ", ") + hosts[i];
  return text;
}

std::string lost_connection_error(const std::string& who) {
  return "the connection to " + who + " was lost: process killed or crashed, or node unreachable";
}

std::string no_heartbeat_error(const std::string& who, milliseconds timeout) {
  return who + " sent no heartbeat for " + seconds(timeout) + ": process stopped or node hung";
}

bool is_lost_connection(const std::exception& error) {
  if (dynamic_cast<const TrainError*>(&error)) return false;
  if (dynamic_cast<const c10::DistError*>(&error)) return true;
  return is_of_gloo(error);
}

std::optional<std::string> failure_message(const BrokenGroup& group, const std::exception& error) {
  const bool is_peers = dynamic_cast<const PeerFailed*>(&error) != nullptr;
  const bool is_own = dynamic_cast<const TrainError*>(&error) != nullptr;
  const bool is_lost = is_lost_connection(error) || (!group.lost.empty() && !is_own && !is_peers);
  std::optional<std::string> message;
  if (!is_lost && !is_peers) message = one_line(error);
  const bool is_reported_lost = contains(group.lost, group.rank);
  if (is_reported_lost) return message;
  StoreAnswer answer = StoreAnswer::kUnreachable;
  try {
    if (!group.lost.empty() && !group.hung_up && !message) return heartbeat_message(group);
    answer = probe_store(group);
    if (answer != StoreAnswer::kReady) throw std::runtime_error("no store");
    c10d::Store& store = group.store;
    store.setTimeout(kCollect);
    put(store, key("ended", group.rank), std::to_string(group.waited.count()));
    if (group.rank == 0) publish_closed(group);
    if (message)
      message = report_own_error(store, *message);
    else if (is_lost)
      message = report_loss(group, error);
    put(store, key("done", group.rank), "yes");
    if (group.rank == 0) wait_for_reports(store, group.world_size);
  } catch (const std::exception&) {
    if (is_lost && !message) message = store_loss_message(group, answer, error);
  }
  return message;
}

}  // namespace torchbridge::train
