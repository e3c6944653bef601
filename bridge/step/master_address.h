// MASTER_ADDR where only rank 0's node can know it: addr=iface:NAME and addr=subnet:CIDR.
#pragma once

#include <chrono>
#include <string>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/layout.h"
#include "bridge/core/task_map.h"
#include "bridge/net/host_names.h"

namespace torchbridge {

// Collective over all tasks of the step. Rank 0 selects its address by the rule and sends it to the
// others, which connect to `store`, the address of its node's name. By rules that need no interface
// it returns store.host at once. Waits at most `timeout` for nodes that start late. Where rank 0
// has no such address the others' error is reported_elsewhere. Without a token another user could
// answer in rank 0's place.
Result<std::string> agree_on_address(const LaunchFacts& facts, const TaskMap& map, const Layout& at,
                                     const Endpoint& store, const LaunchOptions& options,
                                     std::chrono::milliseconds timeout, const HostNames& names,
                                     const std::string& token);

}  // namespace torchbridge
