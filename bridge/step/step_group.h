// The tasks of a step whose launcher names the nodes, as a group for an all-gather
// (bootstrap/all_gather.h).
#pragma once

#include <string>

#include "bridge/bootstrap/all_gather.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/layout.h"
#include "bridge/core/task_map.h"
#include "bridge/net/host_names.h"

namespace torchbridge {

// The node whose first task listens for the first tasks of the other nodes.
struct ListeningNode {
  int node = 0;
  std::string address;     // numeric
  std::string listen_at;   // what it listens on, there
  std::vector<int> ports;  // one of which is free there
};

// The first port is that of `store`, which no program uses yet; the others are further ports that
// the launcher reserved for the step, or are derived from its id within the range that the options
// allow. The same on all nodes, but for `listen_at`.
Result<ListeningNode> listening_node(const LaunchFacts& facts, const TaskMap& map,
                                     const LaunchOptions& options, int node, const Endpoint& store,
                                     const HostNames& names = {});

// `at.rank` and `at.world_size` number the members. `purpose` distinguishes this all-gather from
// others of the same step, and `token` is the secret where the tasks of the step share one.
BootstrapGroup group_of_step(const LaunchFacts& facts, const Layout& at, const ListeningNode& where,
                             const std::string& purpose, const std::string& token = {});

// all_gather in such a group; that no other node answered is an error too. An error has one
// reporter: it is only_here on that task, and reported_elsewhere on the others that have it.
Result<Values> all_gather_in_step(const BootstrapGroup& group, const std::string& value,
                                  std::chrono::milliseconds timeout, const Reduce& reduce = {});

}  // namespace torchbridge
