// The ranks of one job tell each other their nodes, and rank 0 tells where the store will be.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "bridge/bootstrap/exchange.h"
#include "bridge/core/endpoint.h"
#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// Whether a program in this process will take over the store's socket, or a program that finds only its port.
enum class StoreSocket {
  kListening,  // nobody else can have the port; close-on-exec
  kReserved,   // bound, not listening: a program that is told the port can still listen there; stays open over exec
};

// Where the store will be. The socket is open on the rank that bound the endpoint.
struct StoreAddress {
  Endpoint endpoint;
  Socket socket;
};

// On the rank that will serve the store: the address and port of `options`, or else a free port outside the range that
// the kernel hands out by itself, bound on the one interface that the job needs (loopback where `one_node`).
Result<StoreAddress> bind_store(bool one_node, const LaunchOptions& options, StoreSocket kind);

// The launcher's PMIx server, which all ranks of a node leave before any of them goes on.
Result<std::unique_ptr<Exchange>> connect_by_pmix(const LaunchFacts& facts);

// The cheapest way that the launcher leaves open for its ranks to ask each other. The error says what would open one.
Result<std::unique_ptr<Exchange>> connect(const LaunchFacts& facts, const EnvMap& environment,
                                          const LaunchOptions& options);

// Collective over the ranks of facts.world_size. Completes `facts` by what the ranks say (node of each rank, ranks
// here, and a job id where the launcher has none). Returns `given`, or where it is empty the address that rank 0 bound.
// Where rank 0 cannot bind one, it has the reason, and the others an error too. `timeout` is how long the others are
// waited for.
Result<StoreAddress> meet(LaunchFacts& facts, Exchange& exchange, const std::optional<Endpoint>& given,
                          const LaunchOptions& options, StoreSocket kind, std::chrono::milliseconds timeout);

// Takes over facts.node_of_rank: ranks of a node are numbered in ascending order, whatever the launcher's own local
// ranks are. An error where the launcher counts other ranks on this node than the ranks themselves.
Status take_nodes(LaunchFacts& facts);

}  // namespace torchbridge
