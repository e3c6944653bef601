#include "trainer_template/runtime/process_group/failure_report.h"

#include <algorithm>
#include <future>
#include <initializer_list>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>

#include <c10/util/Exception.h>
#include <torchbridge/errors.h>

#include "bridge/base/constant_time.h"
#include "bridge/base/env_map.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"
#include "trainer_template/runtime/process_group/connections.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"
#include "trainer_template/runtime/rendezvous/store_probe.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// How long the reporter of a broken group waits for the ranks that are left.
constexpr milliseconds kCollect{1000};
// In which a rank that comes to a collective after a timeout finds that the group is broken: NCCL's
// watchdogs and the heartbeat's threads look once or twice a second.
constexpr milliseconds kUntilNoticed{3000};
// Until the other ranks of this node have noticed too that the store is lost.
constexpr milliseconds kStragglers{300};

// Set by a rank whose own error is the cause.
constexpr const char* kOwnError = "own error";
// The rank and the error of the first whose NCCL knows more than that another rank has failed.
constexpr const char* kReason = "reason";
// "ended" of a rank that is lost, set by rank 0 so that no rank waits for it; and of a stuck one.
constexpr const char *kGone = "gone", *kStuck = "stuck";

// A text that only a rank of the group can have written under this name: proof, then text.
constexpr std::size_t kProofSize = 32;
std::string with_proof(const BrokenGroup& group, const std::string& name, std::string_view text) {
  return hmac_sha256(group.secret, formatted("{}\n{}", name, text)) + std::string(text);
}
bool has_proof(const BrokenGroup& group, const std::string& name, const std::string& value) {
  return value.size() >= kProofSize &&
         is_equal_in_constant_time(
             value, with_proof(group, name, std::string_view(value).substr(kProofSize)));
}

// Whether this rank is the first to take the name. One whom a stranger keeps from it is too.
bool is_first_to_take(const BrokenGroup& group, const std::string& name) {
  const std::string own = with_proof(group, name, std::to_string(group.rank));
  const std::string holder = group.store.compareSet(name, std::string(), own);
  return holder == own || !has_proof(group, name, holder);
}

void put_own_error(c10d::Store& store, const BrokenGroup& group) {
  put(store, kOwnError, with_proof(group, kOwnError, ""));
}
bool has_own_error(const BrokenGroup& group) {
  return group.store.check({kOwnError}) && has_proof(group, kOwnError, get(group.store, kOwnError));
}

// "noticed" of a rank that has found that the group is broken, as text in this order.
struct Notice {
  std::int64_t waited = 0;  // milliseconds
  int collectives = 0, in_subgroup = 0;
  int cause = 0;  // a c10d::ErrorType
};
using Notices = std::map<int, Notice>;

bool has_one_of(const std::string& text, std::initializer_list<const char*> parts) {
  return std::ranges::any_of(
      parts, [&](const char* part) { return text.find(part) != std::string::npos; });
}

// An error of this rank's GPU that NCCL has found, or NCCL's watchdog: their text alone says so.
bool is_backends_error_of_gpu(const BrokenGroup& group, const std::exception& error) {
  if (!dynamic_cast<const c10::DistBackendError*>(&error)) return false;
  const std::string text = one_line(error);
  const bool is_of_gpu = has_one_of(text, {"CUDA error", "ncclUnhandledCudaError"});
  return is_of_gpu && group.lost.empty() && group.closed.empty() && group.aborted_ranks.empty();
}

// Of a collective, not of the program's own work. NCCL's own error may be one of the network:
// "Connection timed out".
bool is_timeout(const std::exception& error) {
  const std::string text = one_line(error);
  if (!is_lost_connection(error))  // of c10d::Work::wait()
    return dynamic_cast<const c10::Error*>(&error) && text == "Operation timed out!";
  return has_one_of(text, {"imed out", "imeout"}) && !has_one_of(text, {"NCCL error"});
}

// What this rank knows of the cause; nothing if it fails by itself. Where the backend alone knows
// of a timeout, the rank's own error is one of the abort.
c10d::ErrorType own_cause(const BrokenGroup& group, const std::exception& error) {
  if (group.has_own_error || dynamic_cast<const PeerFailed*>(&error))
    return c10d::ErrorType::SUCCESS;
  return is_timeout(error) ? c10d::ErrorType::TIMEOUT : group.backend_error;
}

// "[FILE:LINE] ..." of a source of gloo's, maybe after words of c10d's.
bool is_of_gloo(const std::exception& error) {
  const std::string text = one_line(error);
  const std::string place = text.substr(0, text.find("] "));
  const auto begin = place.rfind('[');
  return begin != place.npos && place.size() < text.size() &&
         place.find("gloo/", begin) != place.npos;
}

// ncclRemoteError follows from another rank's error or end. So may each error of a call that this
// rank's abort ends: NCCL's sockets give ncclInternalError then.
bool is_reason_of_nccl(const BrokenGroup& group, const std::exception& error) {
  const std::string text = one_line(error);
  if (group.is_aborting) return has_one_of(text, {"ncclSystemError", "ncclUnhandledCudaError"});
  return has_one_of(text, {"NCCL error"}) && !has_one_of(text, {"ncclRemoteError"});
}

// Of this rank's own abort: the second is libtorch's, in the next call of NCCL.
bool is_of_abort(const BrokenGroup& group, const std::exception& error) {
  const std::string text = one_line(error);
  return has_one_of(text, {kAbortedCollective, "NCCL communicator was aborted"}) ||
         (group.is_aborting && has_one_of(text, {"NCCL error"}) &&
          !is_reason_of_nccl(group, error));
}

void offer_reason(const BrokenGroup& group, const std::exception& error) {
  group.store.compareSet(
      kReason, std::string(),
      with_proof(group, kReason,
                 formatted("{}: {}", with_hosts(group, {group.rank}), one_line(error))));
}
std::optional<std::string> offered_reason(const BrokenGroup& group) {
  if (!group.store.check({kReason})) return std::nullopt;
  const std::string value = get(group.store, kReason);
  return has_proof(group, kReason, value) ? std::optional(value.substr(kProofSize)) : std::nullopt;
}

void put_notice(c10d::Store& store, const BrokenGroup& group, c10d::ErrorType cause) {
  std::ostringstream text;
  text << group.waited.count() << ' ' << group.collectives << ' ' << group.in_subgroup << ' '
       << static_cast<int>(cause);
  put(store, key("noticed", group.rank), text.str());
}

std::vector<std::string> values_of(c10d::Store& store, const char* name,
                                   const std::vector<int>& ranks) {
  std::vector<std::string> keys, values;
  for (const int rank : ranks) keys.push_back(key(name, rank));
  if (keys.empty()) return values;
  for (const auto& bytes : store.multiGet(keys)) values.emplace_back(bytes.begin(), bytes.end());
  return values;
}

// The ranks that do not set "ended" in time, or never will; and those of this other value.
std::vector<int> wait_for_ends(c10d::Store& store, int world_size, std::string_view other) {
  std::vector<int> missing = missing_after(store, "ended", all_ranks(world_size), kCollect),
                   arrived;
  std::ranges::set_difference(all_ranks(world_size), missing, std::back_inserter(arrived));
  const auto values = values_of(store, "ended", arrived);
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    if (values[i] == kGone || values[i] == other) missing.push_back(arrived[i]);
  }
  std::ranges::sort(missing);
  return missing;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::count(ranks, rank) > 0;
}

// Of all ranks but those `missing` ones that have not noticed either.
Notices notices_of(const BrokenGroup& group, const std::vector<int>& missing) {
  std::vector<int> ranks = all_ranks(group.world_size);
  std::erase_if(ranks, [&](int rank) {
    return contains(missing, rank) && !group.store.check({key("noticed", rank)});
  });
  const std::vector<std::string> values = values_of(group.store, "noticed", ranks);
  Notices notices;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Notice& one = notices[ranks[i]];
    std::istringstream(values[i]) >> one.waited >> one.collectives >> one.in_subgroup >> one.cause;
  }
  return notices;
}

// What all these ranks know of the cause: the rank that reports may be one that only saw the others
// abort. A timeout comes first, as other errors follow from it.
c10d::ErrorType common_cause(const Notices& notices) {
  int common = 0;
  for (const auto& [rank, one] : notices) {
    if (one.cause != 0) common = common == 0 ? one.cause : std::min(common, one.cause);
  }
  return static_cast<c10d::ErrorType>(common);
}

int most_collectives(const Notices& notices) {
  int most = 0;
  for (const auto& [rank, one] : notices) most = std::max(most, one.collectives);
  return most;
}

// Those that have aborted before, without those that still do so and are not the cause. Of a
// timeout the cause is a rank that has not begun the collective that others wait for; of subgroups
// these are not counted.
std::vector<int> without_slow_aborts(std::vector<int> missing, const Notices& notices) {
  constexpr int kTimeout = static_cast<int>(c10d::ErrorType::TIMEOUT);
  const bool is_late = common_cause(notices) == c10d::ErrorType::TIMEOUT;
  const bool in_subgroup = std::ranges::any_of(notices, [](const auto& one) {
    return one.second.cause == kTimeout && one.second.in_subgroup != 0;
  });
  const int most = most_collectives(notices);
  std::erase_if(missing, [&](int rank) {
    const auto found = notices.find(rank);
    if (found == notices.end()) return false;
    const Notice& own = found->second;
    return !is_late || own.cause == kTimeout || (own.collectives == most && !in_subgroup);
  });
  return missing;
}

// REQUIRES: all ranks have noticed. Those that have not begun the collective that others wait for,
// without those that timed out, so that they waited themselves, as in one of a subgroup; where all
// have begun it, those that have hardly waited reached it after the others had timed out.
std::vector<int> late_ranks(const Notices& notices) {
  std::int64_t longest = 0;
  for (const auto& [rank, one] : notices) longest = std::max(longest, one.waited);
  const std::int64_t hardly = std::min(longest / 2, std::int64_t{kUntilNoticed.count()});
  const int most = most_collectives(notices);
  const bool all_have_begun =
      std::ranges::all_of(notices, [&](const auto& one) { return one.second.collectives == most; });
  std::vector<int> late;
  for (const auto& [rank, one] : notices) {
    const bool waits = one.cause == static_cast<int>(c10d::ErrorType::TIMEOUT);
    if (all_have_begun ? one.waited < hardly : one.collectives != most && !waits)
      late.push_back(rank);
  }
  return late;
}

std::string missing_ranks_error(const std::string& who) {
  return who + " did not take part in a collective in time: process stopped or stuck, or node hung";
}

// `unended`: the ranks that have not set "ended".
std::string loss_error(const BrokenGroup& group, const std::vector<int>& unended,
                       const Notices& notices, const std::exception& error) {
  const std::vector<int> missing = without_slow_aborts(unended, notices);
  const c10d::ErrorType cause = common_cause(notices);
  const bool is_late = cause == c10d::ErrorType::TIMEOUT;
  if (!missing.empty()) {
    const std::string who = with_hosts(group, missing);
    return is_late ? missing_ranks_error(who) + interfaces_note(group) : lost_connection_error(who);
  }
  if (is_late) {
    const std::vector<int> behind = late_ranks(notices);
    if (behind.empty()) {
      std::string text = missing_ranks_error("another rank");
      // Its abort may be slow, or its GPU hangs.
      if (!unended.empty()) text += formatted("; {} has not ended", with_hosts(group, unended));
      return text + interfaces_note(group);
    }
    return formatted(
        "{} reached a collective after the other ranks had timed out: slow, stopped for a while, "
        "or in another part of the program{}",
        with_hosts(group, behind), interfaces_note(group));
  }
  if (is_reason_of_nccl(group, error)) return one_line(error);
  if (auto reason = offered_reason(group)) return *std::move(reason);
  // An error of another rank's backend may follow from that of this rank, which has a text then.
  if (group.backend_error != c10d::ErrorType::SUCCESS ||
      (cause != c10d::ErrorType::SUCCESS && is_of_abort(group, error)))
    return "the backend's connections between the ranks failed; its own log has the reason "
           "(NCCL_DEBUG=WARN)";
  // No rank is missing. The error of a backend other than gloo has more than the loss of a
  // connection in its text.
  return is_of_gloo(error) ? lost_connection_error("another rank") : one_line(error);
}

// First, because TCPStore waits forever for the answer of a rank 0 that is stopped.
StoreAnswer probe_store(const BrokenGroup& group) {
  if (group.rank == 0 || !group.join_result.served_by_rank_0) return StoreAnswer::kReady;
  return wait_for_store(*group.join_result.served_by_rank_0, kCollect).answer;
}

// Of the reporter, where another program has changed the store.
std::string changed_store_message(const BrokenGroup& group) {
  return lost_connection_error(group.closed.empty() ? "another rank"
                                                    : with_hosts(group, group.closed));
}

// The store is lost with rank 0: of the ranks on the reporter's node the first to take the name
// reports it.
std::optional<std::string> store_loss_message(const BrokenGroup& group, StoreAnswer answer,
                                              const std::exception& error) {
  if (!group.join_result.served_by_rank_0)
    return group.rank == 1 ? std::optional(lost_connection_error("another rank")) : std::nullopt;
  if (group.rank == 0) return changed_store_message(group);
  if (contains(group.aborted_ranks, 0) || host_name() != group.join_result.reporter_host)
    return std::nullopt;
  const Endpoint& store = *group.join_result.served_by_rank_0;
  if (!claim_name("lost/" + store.host + "/" + std::to_string(store.port))) return std::nullopt;
  std::this_thread::sleep_for(kStragglers);
  const std::string who = with_hosts(group, {0});
  if (answer != StoreAnswer::kNoAnswer) return lost_connection_error(who);
  const bool is_late = own_cause(group, error) == c10d::ErrorType::TIMEOUT;
  return is_late ? missing_ranks_error(who)
                 : formatted("{} does not answer: process stopped or node hung", who);
}

std::optional<std::string> heartbeat_message(const BrokenGroup& group) {
  if (group.rank != lowest_left(group.lost)) return std::nullopt;
  return no_heartbeat_error(with_hosts(group, group.lost), group.heartbeat_timeout);
}

// Every rank that is left sets "ended"; the first that lost a connection reports the ranks that
// have not set it.
std::optional<std::string> report_loss(const BrokenGroup& group, const std::exception& error) {
  const bool all_others_aborted = std::ssize(group.aborted_ranks) == group.world_size - 1;
  if (all_others_aborted || !is_first_to_take(group, "reporter")) return std::nullopt;
  try {
    // The ranks that are left notice within milliseconds, for this rank has closed its connections
    // to them.
    const std::vector<int> missing = wait_for_ends(group.store, group.world_size, kStuck);
    if (has_own_error(group)) return std::nullopt;
    return loss_error(group, missing, notices_of(group, missing), error);
  } catch (const std::exception&) {
    const bool may_be_rank_0 = group.rank != 0 && !contains(group.aborted_ranks, 0);
    if (may_be_rank_0 && probe_store(group) != StoreAnswer::kReady) throw;
    return changed_store_message(group);
  }
}

// Not of a rank that has ended in order, as one whose abort watchdog ended it after its message.
void publish_closed(const BrokenGroup& group) {
  for (const int rank : group.closed) {
    if (!group.store.check({key("ended", rank)})) put(group.store, key("ended", rank), kGone);
  }
}

// A rank with an error of its own reports it; where several ranks have the same error, the first
// one does.
std::optional<std::string> report_own_error(const BrokenGroup& group, const std::string& message) {
  return is_first_to_take(group, "error/" + message) ? std::optional(message) : std::nullopt;
}

// On these ranks nothing was heard of others: no store is needed to say so.
bool is_silent_loss(const BrokenGroup& group) { return !group.lost.empty() && !group.hung_up; }

}  // namespace

c10::intrusive_ptr<c10d::Store> own_store(const BrokenGroup& group) {
  if (is_silent_loss(group) || probe_store(group) != StoreAnswer::kReady) return nullptr;
  // TCPStore tries to connect until the group's timeout, and a store that an agent or the program
  // serves was not probed.
  std::promise<c10::intrusive_ptr<c10d::Store>> made;
  auto own = made.get_future();
  auto shared = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&group.store);
  std::thread([shared = std::move(shared), made = std::move(made)]() mutable {
    try {
      made.set_value(shared->clone());
    } catch (const std::exception&) {
      made.set_value(nullptr);
    }
  }).detach();
  return own.wait_for(kCollect) == std::future_status::ready ? own.get() : nullptr;
}

std::string with_hosts(const BrokenGroup& group, const std::vector<int>& ranks) {
  constexpr std::size_t kMostHosts = 8;
  const bool has_store = !contains(ranks, 0) || !group.join_result.served_by_rank_0;
  std::vector<std::string> hosts;
  if (!has_store) hosts.push_back(group.join_result.rank_0_host);
  const std::size_t count = has_store ? std::min(ranks.size(), kMostHosts) : 0;
  try {
    for (const RankLocation& location : locations_of(
             group.store, {ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count)})) {
      if (std::ranges::count(hosts, location.host) == 0) hosts.push_back(location.host);
    }
  } catch (const std::exception&) {
    // The store is lost, or another program has changed it: the ranks are named without hosts.
  }
  std::string text = list_of(ranks);
  for (std::size_t i = 0; i < hosts.size(); ++i) text += (i == 0 ? " on " : ", ") + hosts[i];
  return text;
}

// NCCL takes the first interface that is up; where another rank cannot reach it, collectives time
// out.
std::string interfaces_note(const BrokenGroup& group) {
  if (group.interfaces.empty()) return {};
  return formatted(
      "; rank {} used the interface {}", group.rank,
      joined(group.interfaces, ", ", [](const std::string& name) { return printable(name); }));
}

int lowest_left(const std::vector<int>& lost) {
  int rank = 0;
  while (contains(lost, rank)) ++rank;
  return rank;
}

std::string lost_connection_error(const std::string& who) {
  return formatted("the connection to {} was lost: process killed or crashed, or node unreachable",
                   who);
}

std::string no_heartbeat_error(const std::string& who, milliseconds timeout) {
  return formatted("{} sent no heartbeat for {}: process stopped or node hung", who,
                   seconds(timeout));
}

bool is_lost_connection(const std::exception& error) {
  if (dynamic_cast<const TrainError*>(&error)) return false;
  if (dynamic_cast<const c10::DistError*>(&error)) return true;
  return is_of_gloo(error);
}

bool is_own_error(const BrokenGroup& group, const std::exception& error) {
  if (dynamic_cast<const TrainError*>(&error) ||
      dynamic_cast<const c10::AcceleratorError*>(&error) || is_backends_error_of_gpu(group, error))
    return true;
  return !group.is_aborting && group.lost.empty() &&
         group.backend_error == c10d::ErrorType::SUCCESS && !is_lost_connection(error) &&
         !is_timeout(error) && dynamic_cast<const PeerFailed*>(&error) == nullptr;
}

// Over a connection of its own: on that of the store another thread may wait.
void announce_failure(const BrokenGroup& group, const std::exception* error) {
  if (is_silent_loss(group)) return;  // the heartbeat tells each rank
  try {
    // One that aborts in order still serves the store, which the probe shows.
    if (contains(group.closed, 0) && group.join_result.served_by_rank_0) return;
    const auto own = own_store(group);
    if (!own) return;
    if (group.has_own_error) put_own_error(*own, group);
    put_notice(*own, group, error ? own_cause(group, *error) : group.backend_error);
  } catch (const std::exception&) {
    // The store is lost: failure_message() finds that too.
  }
}

std::optional<std::string> failure_message(const BrokenGroup& group, const std::exception& error) {
  if (group.world_size == 1) return one_line(error);
  const bool is_peers = dynamic_cast<const PeerFailed*>(&error) != nullptr;
  const bool is_aborted = !group.lost.empty() || group.backend_error != c10d::ErrorType::SUCCESS;
  const bool is_lost = !group.has_own_error && !is_peers &&
                       (is_lost_connection(error) || is_timeout(error) || is_aborted);
  std::optional<std::string> message;
  if (!is_lost && !is_peers) message = one_line(error);
  const bool is_reported_lost = contains(group.lost, group.rank);
  if (is_reported_lost) return message;
  StoreAnswer answer = StoreAnswer::kUnreachable;
  c10d::Store& store = group.store;
  store.setTimeout(kCollect);  // anybody may have deleted a key that is read
  try {
    if (is_silent_loss(group) && !message) return heartbeat_message(group);
    answer = probe_store(group);
    if (answer != StoreAnswer::kReady) throw std::runtime_error("no store");
    put_notice(store, group, own_cause(group, error));
    if (message) put_own_error(store, group);  // first: the reporter waits for "ended"
    if (is_lost && is_reason_of_nccl(group, error)) offer_reason(group, error);
    put(store, key("ended", group.rank), group.is_stuck ? kStuck : "yes");
    if (group.rank == 0) publish_closed(group);
    if (message)
      message = report_own_error(group, *message);
    else if (is_lost)
      message = report_loss(group, error);
  } catch (const std::exception&) {
    if (is_lost && !message) message = store_loss_message(group, answer, error);
  }
  return message;
}

void end_report(const BrokenGroup& group) {
  if (group.world_size == 1 || is_silent_loss(group)) return;
  try {
    if (probe_store(group) != StoreAnswer::kReady) return;
    put(group.store, key("done", group.rank), "yes");
    if (group.rank != 0) return;
    std::vector<int> alive = all_ranks(group.world_size);
    for (int lost : wait_for_ends(group.store, group.world_size, kGone)) std::erase(alive, lost);
    missing_after(group.store, "done", alive, 2 * kCollect);
  } catch (const std::exception&) {
    // Lost, with an agent or a file.
  }
}

}  // namespace torchbridge::train
