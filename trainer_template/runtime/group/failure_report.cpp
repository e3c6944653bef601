#include <torchbridge/train/group/failure_report.h>

#include <c10/util/Exception.h>
#include <torchbridge/net/did_not_come.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/group/places.h>
#include <torchbridge/train/group/process_group.h>
#include <torchbridge/train/group/store_keys.h>

#include <algorithm>
#include <string_view>

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// How long the rank that speaks for a broken group collects who is still there.
constexpr milliseconds kCollect{1000};

bool is_timeout(std::string_view text) {
  return text.find("imed out") != std::string_view::npos || text.find("imeout") != std::string_view::npos;
}

bool is_of_gloo(const std::exception& error) { return std::string_view(error.what()).find("gloo") != std::string_view::npos; }

// Rank 0 may serve the store, which the others need until they have spoken.
void linger(c10d::Store& store, int world_size) {
  std::vector<int> alive = all_ranks(world_size);
  for (int gone : missing_after(store, "ended", alive, kCollect)) std::erase(alive, gone);
  missing_after(store, "done", alive, 2 * kCollect);
}

std::string loss(const std::vector<int>& missing, const std::exception& error) {
  const std::string who = missing.empty() ? "another rank" : list_of(missing);
  if (is_timeout(error.what())) return who + " did not take part in a collective in time: stopped, or stuck";
  // All are there, and the backend knows more than that something was lost.
  if (missing.empty() && !is_of_gloo(error)) return one_line(error);
  return "the connection to " + who + " was lost: killed, crashed, or its node is unreachable";
}

// "rank 1 on n1 says".
std::string silent_ranks(c10d::Store& store, const std::vector<int>& lost) {
  std::string nodes;
  constexpr std::size_t kNamed = 8;
  const bool store_lives = std::ranges::count(lost, 0) == 0;
  const std::vector<int> named(lost.begin(), lost.begin() + static_cast<std::ptrdiff_t>(store_lives ? std::min(lost.size(), kNamed) : 0));
  for (const Place& place : places_of(store, named)) {
    if (nodes.find(place.host) == std::string::npos) nodes += (nodes.empty() ? " on " : ", ") + place.host;
  }
  return list_of(lost) + nodes + (lost.size() == 1 ? " says" : " say");
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
  c10d::Store& store = group.store;
  try {
    store.setTimeout(kCollect);
    if (!group.lost.empty() && !group.hung_up && !message) {
      int speaker = 0;
      while (std::ranges::count(group.lost, speaker) > 0) ++speaker;
      if (group.rank != speaker) return std::nullopt;
      return silent_ranks(store, group.lost) + " nothing for " + seconds(group.silence) + ": stopped, or the node hangs";
    }
    put(store, key("ended", group.rank), "yes");
    if (message) {
      // A rank with trouble of its own tells it, and where several have the same, the first one.
      put(store, "own trouble", "yes");
      if (store.add("trouble/" + *message, 1) > 1) message.reset();
    } else if (lost && store.add("reporters", 1) == 1) {
      // Those that are alive notice within milliseconds, for their connections to this rank are cut.
      const std::vector<int> missing = missing_after(store, "ended", all_ranks(group.world_size), kCollect);
      if (!missing.empty() || !store.check({"own trouble"})) message = loss(missing, error);
    }
    put(store, key("done", group.rank), "yes");
    if (group.rank == 0) linger(store, group.world_size);
  } catch (const std::exception&) {
    // The store is gone, and rank 0 with it.
    if (lost && !message && group.rank == 1) message = "the connection to rank 0 was lost: killed, crashed, or its node is unreachable";
  }
  return message;
}

}  // namespace torchbridge::train
