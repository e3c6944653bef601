#include "trainer_template/runtime/rendezvous/join_ranks.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/base/env_map.h"
#include "bridge/net/address.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How much longer than rank 0 the others wait for its verdict on who came.
constexpr milliseconds kVerdictGrace{3000};
// How long rank 0 waits until they have read it.
constexpr milliseconds kInformed{1000};

// Set by a rank that cannot take part and has said why.
constexpr const char* kRefused = "refused";

// This rank says itself why it cannot take part, and rank 0 need not wait for it.
void refuse(c10d::Store& store, const Layout& layout) {
  put(store, kRefused, "yes");
  announce(store, layout);
  put(store, key("informed", layout.rank), "yes");
}

// In a file that a killed run left every rank finds itself: one says it.
bool rank_0_is_doubled(c10d::Store& store) {
  constexpr milliseconds kTime{2000}, kPause{20};
  const auto deadline = Clock::now() + kTime;
  while (store.add(key("claim", 0), 0) < 2) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// Whether this rank is the one that says what several have found.
bool speaks_of(c10d::Store& store, const std::string& trouble) {
  put(store, kRefused, "yes");
  return store.add("trouble/" + trouble, 1) == 1;
}

std::string advice_for(const InitMethod& method) {
  if (method.kind == InitMethod::Kind::kFile) return "does its node see this file?";
  if (method.kind == InitMethod::Kind::kStore) return "was it given the same store?";
  return "does MASTER_ADDR lead here from its node?";
}

// gloo would wait for ranks that are only in one of two counts.
void agree_on_world_size(c10d::Store& store, const Launch& launch, const JoinRequest& request) {
  constexpr const char* kKey = "world size";
  const Layout& layout = launch.env.layout;
  const std::string own = std::to_string(layout.world_size);
  if (layout.rank == 0) return put(store, key(kKey, 0), own);
  // Where it does not serve the store, it may be the one that is missing.
  if (!missing_after(store, kKey, {0}, request.patience).empty()) {
    const std::string trouble = with_nodes({0}, launch, {}) + " of " + own + " did not join at " +
                                where(launch.env.master, request.method) + " within " + seconds(request.patience) +
                                "; was it started, and " + advice_for(request.method);
    if (speaks_of(store, trouble)) throw TrainError(trouble);
    throw PeerFailed();
  }
  const std::string served = get(store, key(kKey, 0));
  if (served == own) return;
  refuse(store, layout);
  throw TrainError("this rank is one of " + own + " (WORLD_SIZE), but by rank 0 there are " + printable(served));
}

// Why this rank cannot take part: by itself, or for another backend than rank 0's, with which each would wait for the
// other in another place.
std::optional<std::string> trouble_of(c10d::Store& store, const Layout& layout, const JoinRequest& request) {
  constexpr const char *kKey = "backend", *kNone = "?";
  if (layout.rank == 0) put(store, key(kKey, 0), request.trouble ? kNone : request.backend);
  if (layout.rank == 0 || request.trouble) return request.trouble;
  const std::string served = get(store, key(kKey, 0));
  if (served == request.backend || served == kNone) return std::nullopt;
  return "the backend is " + request.backend + " here and " + printable(served) +
         " on rank 0; all ranks need the same one";
}

void claim(c10d::Store& store, const TorchEnv& env, const InitMethod& method) {
  const int rank = env.layout.rank;
  if (store.add(key("claim", rank), 1) == 1) return;
  const bool is_file = method.kind == InitMethod::Kind::kFile;
  if (is_file && rank != 0) {
    if (rank_0_is_doubled(store)) throw PeerFailed();
    refuse(store, env.layout);
  }
  const std::string way_out = is_file ? "remove the file if it is left from a run that was killed, or name another one"
                              : method.kind == InitMethod::Kind::kStore
                                  ? "a second group at one store needs another group_name"
                                  : "two runs need two values of MASTER_PORT";
  throw TrainError("another process is already rank " + std::to_string(rank) + " of the run '" + printable(env.run_id) +
                   "' at " + where(env.master, method) + "; " + way_out);
}

// The first rank on another node than rank 0 has come: its host.
std::string another_host(c10d::Store& store, const Layout& layout) {
  const std::string own = host_name();
  for (int rank = 1; layout.node_count > 1 && rank < layout.world_size; ++rank) {
    const std::string host = locations_of(store, {rank}).front().host;
    if (host != own) return host;
  }
  return own;
}

constexpr const char* kAllCame = "all";

JoinResult join_result_of(const std::string& verdict) {
  std::istringstream words(verdict);
  std::string all;
  JoinResult join_result;
  words >> all >> join_result.first_host >> join_result.speaking_host;
  return join_result;
}

}  // namespace

// Rank 0 waits for all and gives the verdict, which the others wait for: one message where somebody is missing.
JoinResult join_ranks(c10d::Store& store, const Launch& launch, const JoinRequest& request) {
  failpoint("join");
  const Layout& layout = launch.env.layout;
  claim(store, launch.env, request.method);
  agree_on_world_size(store, launch, request);
  const auto trouble = trouble_of(store, layout, request);
  const bool speaks = trouble && speaks_of(store, *trouble);
  announce(store, layout);
  if (layout.rank != 0) {
    if (trouble) put(store, key("informed", layout.rank), "yes");
    if (speaks) throw TrainError(*trouble);
    if (trouble) throw PeerFailed();
    store.wait({"verdict"}, request.patience + kVerdictGrace);
    if (const std::string verdict = get(store, "verdict"); verdict.starts_with(kAllCame))
      return join_result_of(verdict);
    put(store, key("informed", layout.rank), "yes");
    throw PeerFailed();
  }
  const std::vector<int> missing = missing_after(store, "joined", all_ranks(layout.world_size), request.patience);
  const bool refused = store.check({kRefused});
  if (missing.empty() && !refused) {
    const std::string verdict = std::string(kAllCame) + " " + host_name() + " " + another_host(store, layout);
    put(store, "verdict", verdict);
    return join_result_of(verdict);
  }

  put(store, "verdict", "incomplete");
  std::vector<int> present = all_ranks(layout.world_size);
  std::erase_if(present, [&](int rank) { return std::ranges::count(missing, rank) > 0; });
  const std::vector<RankLocation> locations = locations_of(store, present);
  std::erase(present, 0);
  missing_after(store, "informed", present, kInformed);
  if (speaks) throw TrainError(*trouble);
  if (refused) throw PeerFailed();
  throw TrainError(with_nodes(missing, launch, locations) + " of " + std::to_string(layout.world_size) +
                   " did not join at " + where(launch.env.master, request.method) + " within " +
                   seconds(request.patience) + "; was every rank started, and " + advice_for(request.method));
}

std::string where(const Endpoint& endpoint, const InitMethod& method) {
  if (method.kind == InitMethod::Kind::kFile) return "file://" + method.path;
  if (method.kind == InitMethod::Kind::kStore) return "the given store";
  return endpoint.host + " port " + std::to_string(endpoint.port);
}

}  // namespace torchbridge::train
