// MASTER_ADDR and MASTER_PORT of a launcher that names its nodes; the port is taken before the
// program starts.
#pragma once

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/task_map.h"
#include "bridge/net/host_names.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// The numeric address of a node by the launcher's name for it. Where the name does not resolve
// here, and the node is this one (`is_here`, or its host name is the launcher's),
// reachable_address().
Result<std::string> address_of_node(const std::string& name, bool is_here,
                                    const HostNames& names = {});

// endpoint_of with a numeric address instead of the name, unless the name of another node resolves
// to a loopback address here. With one node no name is needed. The facts may have the address of
// rank 0's node. An error of the resolver is only_here.
Result<Endpoint> store_endpoint_of(const LaunchFacts& facts, const TaskMap& map,
                                   const LaunchOptions& options, const HostNames& names = {});

// On rank 0: the port, bound for the program to inherit (see reserve). An error where another
// program of this host has it, or where the address is not of this host: the other ranks would wait
// for a store that no process serves. What an earlier program of the run has left there does not
// count, unless it listens.
Result<Socket> reserve_store_port(const Endpoint& master, const std::string& run_id,
                                  const HostNames& names = {});

}  // namespace torchbridge
