#include "trainer_template/runtime/rendezvous/join_ranks.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/net/address.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How much longer than rank 0 the others wait for its verdict.
constexpr milliseconds kVerdictGrace{3000};
// How long rank 0 waits until the others have read the verdict.
constexpr milliseconds kAcknowledgeTimeout{1000};

// Set when a rank cannot take part and reports the error itself.
constexpr const char* kJoinFailed = "join failed";
// rank: the rank needs nothing more from the store.
constexpr const char* kAcknowledged = "acknowledged";

// This rank reports its own error; rank 0 need not wait for it.
void set_join_failed(c10d::Store& store, const Layout& layout) {
  put(store, kJoinFailed, "yes");
  announce(store, layout);
  put(store, key(kAcknowledged, layout.rank), "yes");
}

// A file that a killed run left holds every rank's claim: rank 0 reports it, if it finds its own
// claim too.
bool is_rank_0_claimed_twice(c10d::Store& store) {
  constexpr milliseconds kTimeout{2000}, kPause{20};
  const auto deadline = Clock::now() + kTimeout;
  while (store.add(key("claim", 0), 0) < 2) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// Whether this rank reports an error that several ranks may have; `kind` is the same for all of
// them.
bool is_reporter_of(c10d::Store& store, const std::string& kind) {
  put(store, kJoinFailed, "yes");
  return store.add("error/" + kind, 1) == 1;
}

std::string hint_for(const InitMethod& method, const Launch& launch) {
  if (method.kind == InitMethod::Kind::kFile) return "its node sees this file";
  if (method.kind == InitMethod::Kind::kStore) return "it uses the same store";
  // Rank 0 alone may have localhost, and then listens at it alone.
  const std::string& host = launch.env.master.host;
  const bool is_here_alone = !launch.is_local_size_known && !launch.may_have_other_nodes &&
                             names_loopback(host) && !is_numeric(host);
  return is_here_alone ? "its node reaches MASTER_ADDR; if some are on other nodes, set "
                         "LOCAL_WORLD_SIZE"
                       : "its node reaches MASTER_ADDR";
}

// With two world sizes gloo would wait for ranks that exist in one of them only.
void agree_on_world_size(c10d::Store& store, const Launch& launch, const JoinRequest& request) {
  constexpr const char* kKey = "world size";
  const Layout& layout = launch.env.layout;
  const std::string own = std::to_string(layout.world_size);
  if (layout.rank == 0) return put(store, key(kKey, 0), own);
  // Where rank 0 does not serve the store, it may be the missing one.
  if (!missing_after(store, kKey, {0}, request.timeout).empty()) {
    const std::string error = formatted(
        "{} of {} did not join at {} within {}; check that it was started and that {}",
        with_nodes({0}, launch, {}), own, store_location(launch.env.master, request.method),
        seconds(request.timeout), hint_for(request.method, launch));
    if (is_reporter_of(store, error)) throw TrainError(error);
    throw PeerFailed();
  }
  const std::string of_rank_0 = get(store, key(kKey, 0));
  if (of_rank_0 == own) return;
  set_join_failed(store, layout);
  throw TrainError(formatted(
      "the world size is {} here (WORLD_SIZE) and {} on rank 0; all ranks need the same one", own,
      printable(of_rank_0)));
}

struct JoinError {
  std::string text;
  std::string kind;  // one rank reports the errors of a kind
};

// NCCL rejects two ranks on one GPU only when it connects, in a warning of its own.
std::optional<JoinError> shared_gpu(c10d::Store& store, const Layout& layout,
                                    const JoinRequest& request) {
  const auto& [name, boot_id] = request.nccl_gpu;
  if (name.empty()) return std::nullopt;
  const std::string counted = "ranks of GPU " + name + boot_id,
                    first = "first rank of GPU " + name + boot_id;
  if (store.add(counted, 1) == 1) {
    put(store, first, std::to_string(layout.rank));
    return std::nullopt;
  }
  return JoinError{formatted("rank {} uses the GPU {} too, and NCCL rejects two ranks on one; give "
                             "each rank a GPU of its own, or use --backend gloo",
                             printable(get(store, first)), name),
                   "shared GPU"};
}

// Why this rank cannot take part: its own error, a backend other than rank 0's, or another rank's
// GPU. Two backends would wait for each other forever.
std::optional<JoinError> error_of(c10d::Store& store, const Layout& layout,
                                  const JoinRequest& request) {
  constexpr const char *kKey = "backend", *kNone = "?";
  if (layout.rank == 0) put(store, key(kKey, 0), request.local_error ? kNone : request.backend);
  if (request.local_error) return JoinError{*request.local_error, *request.local_error};
  const std::string of_rank_0 = get(store, key(kKey, 0));
  if (of_rank_0 == kNone) return std::nullopt;
  if (of_rank_0 == request.backend) return shared_gpu(store, layout, request);
  const std::string text =
      formatted("the backend is {} here and {} on rank 0; all ranks need the same one",
                request.backend, printable(of_rank_0));
  return JoinError{text, text};
}

void claim_number(c10d::Store& store, const TorchEnv& env, const InitMethod& method) {
  const int rank = env.layout.rank;
  if (store.add(key("claim", rank), 1) == 1) return;
  const bool is_file = method.kind == InitMethod::Kind::kFile;
  if (is_file && rank != 0) {
    if (is_rank_0_claimed_twice(store)) throw PeerFailed();
    set_join_failed(store, env.layout);
  }
  const std::string remedy =
      is_file ? "remove the file if it is left from a run that was killed, or name another one"
      : method.kind == InitMethod::Kind::kStore ? "give each group at one store its own group_name"
      : env.use_agent_store
          ? "the agent's store keeps an earlier program's too: set TORCHELASTIC_RUN_ID for each"
          : "give each run its own MASTER_PORT";
  throw TrainError(formatted("another process is already rank {} of the run '{}' at {}; {}", rank,
                             printable(env.run_id), store_location(env.master, method), remedy));
}

// The host of the first rank that is not on rank 0's node; rank 0's own where there is none.
std::string host_of_other_node(c10d::Store& store, const Layout& layout) {
  const std::string own = host_name();
  for (int rank = 1; layout.node_count > 1 && rank < layout.world_size; ++rank) {
    const std::string host = locations_of(store, {rank}).front().host;
    if (host != own) return host;
  }
  return own;
}

constexpr const char* kAllJoined = "all";

JoinResult join_result_of(const std::string& verdict) {
  std::istringstream words(verdict);
  std::string all;
  JoinResult join_result;
  words >> all >> join_result.rank_0_host >> join_result.reporter_host;
  // Anyone who reaches the store can have written it, and the names are printed.
  join_result.rank_0_host = printable(join_result.rank_0_host);
  join_result.reporter_host = printable(join_result.reporter_host);
  return join_result;
}

}  // namespace

void claim_rank(c10d::Store& store, const Launch& launch, const JoinRequest& request) {
  claim_number(store, launch.env, request.method);
  agree_on_world_size(store, launch, request);
}

// Only rank 0 looks for missing ranks, so that there is one message; the others wait for its
// verdict.
JoinResult join_ranks(c10d::Store& store, const Launch& launch, const JoinRequest& request) {
  failpoint("join");
  const Layout& layout = launch.env.layout;
  const auto error = error_of(store, layout, request);
  const bool is_reporter = error && is_reporter_of(store, error->kind);
  announce(store, layout);
  failpoint("verdict");
  if (layout.rank != 0) {
    if (error) put(store, key(kAcknowledged, layout.rank), "yes");
    if (is_reporter) throw TrainError(error->text);
    if (error) throw PeerFailed();
    store.wait({"verdict"}, request.timeout + kVerdictGrace);
    if (const std::string verdict = get(store, "verdict"); verdict.starts_with(kAllJoined))
      return join_result_of(verdict);
    put(store, key(kAcknowledged, layout.rank), "yes");
    throw PeerFailed();
  }
  const std::vector<int> missing =
      missing_after(store, "joined", all_ranks(layout.world_size), request.timeout);
  const bool has_failed = store.check({kJoinFailed});
  if (missing.empty() && !has_failed) {
    const std::string verdict =
        std::string(kAllJoined) + " " + host_name() + " " + host_of_other_node(store, layout);
    put(store, "verdict", verdict);
    return join_result_of(verdict);
  }

  put(store, "verdict", "incomplete");
  std::vector<int> present = all_ranks(layout.world_size);
  std::erase_if(present, [&](int rank) { return std::ranges::count(missing, rank) > 0; });
  const std::vector<RankLocation> locations = locations_of(store, present);
  std::erase(present, 0);
  // The store ends with this rank, and the others still read the verdict from it.
  missing_after(store, kAcknowledged, present, kAcknowledgeTimeout);
  if (is_reporter) throw TrainError(error->text);
  if (has_failed) throw PeerFailed();
  throw TrainError(formatted(
      "{} of {} did not join at {} within {}; check that every rank was started and that {}",
      with_nodes(missing, launch, locations), layout.world_size,
      store_location(launch.env.master, request.method), seconds(request.timeout),
      hint_for(request.method, launch)));
}

std::string store_location(const Endpoint& endpoint, const InitMethod& method) {
  if (method.kind == InitMethod::Kind::kFile) return "file://" + method.path;
  if (method.kind == InitMethod::Kind::kStore) return "the given store";
  return formatted("{} port {}", endpoint.host, endpoint.port);
}

}  // namespace torchbridge::train
