// The ranks of one job exchange their nodes, and rank 0 publishes the address of the store.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/bootstrap/exchange.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/net/socket.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

// Whether a program in this process takes over the store's socket, or a program that gets only the
// port number.
enum class StoreSocket {
  kListening,  // no other program can have the port; close-on-exec
  kReserved,   // bound, not listening: a program that has the number can still listen there; stays
               // open over exec
};

// The address of the store. The socket is open on the rank that bound the endpoint.
struct StoreAddress {
  Endpoint endpoint;
  Socket socket;
  std::string token;  // of rank 0, where it was to be shared; or empty
};

// On the rank that will serve the store: the address and port of `options`, or else a free port
// outside the ephemeral range, bound on the one interface that the job needs (loopback where
// `one_node`).
Result<StoreAddress> bind_store(bool one_node, const LaunchOptions& options, StoreSocket kind);

// The launcher's PMIx server. All ranks of a node disconnect from it before all_gather returns on
// any of them.
Result<std::unique_ptr<Exchange>> connect_by_pmix(const LaunchFacts& facts);

// Whether the ranks have an exchange whose values no other user of a node can read or give, and no
// token of the launcher already, as under OpenMPI 4. OpenMPI 5 over several nodes has one by PMIx
// alone.
bool can_share_token(const LaunchFacts& facts, const EnvMap& environment);

// The cheapest exchange that the launcher allows its ranks. The error contains what would allow
// one. Without a token of the step another user can hold up ranks that are all on one node.
// REQUIRES: can_share_token, where the ranks are to share one.
Result<std::unique_ptr<Exchange>> connect(const LaunchFacts& facts, const EnvMap& environment,
                                          const StepOptions& step, bool shares_token);

// Collective over the ranks of facts.world_size. Completes `facts` (node of each rank, ranks of
// this node, and a job id where the launcher has none). Returns `given`, or where it is empty the
// address that rank 0 bound. Where rank 0 cannot bind one, its error contains the reason, and the
// others get an error too. Where they share a token, rank 0 draws it. Waits for the others at most
// `timeout`.
Result<StoreAddress> publish_store(LaunchFacts& facts, Exchange& exchange,
                                   const std::optional<Endpoint>& given,
                                   const LaunchOptions& options, StoreSocket kind,
                                   std::chrono::milliseconds timeout, bool shares_token = false);

// Sets local_rank, local_size and node_rank from facts.node_of_rank: the ranks of a node are
// numbered in ascending order, whatever the launcher's own local ranks are. An error where the
// launcher gives another number of ranks on this node.
Status set_local_position(LaunchFacts& facts);

}  // namespace torchbridge
