// The tasks of a step whose launcher names the nodes, as a group that tells each other something
// (bootstrap/all_gather.h).
#pragma once

#include <string>

#include "bridge/bootstrap/all_gather.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/layout.h"
#include "bridge/core/task_map.h"

namespace torchbridge {

// The node whose first task listens for those of the other nodes.
struct ListeningNode {
  int node = 0;
  std::string address;     // numeric
  std::vector<int> ports;  // one of which is free there
};

// The first port is that of `store`, before anybody has taken it; the others are further ports that
// the launcher reserved for the step, or follow from its id within the range that the options
// allow. The same on all nodes. Asks the resolver.
Result<ListeningNode> listening_node(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                                     int node, const Endpoint& store);

// `at.rank` and `at.world_size` number the members; `purpose` tells this gathering from others of
// the same step, and `token` makes the proof where the tasks of the step share one. Messages name
// the nodes that did not come.
Group group_of_step(const LaunchFacts& facts, const Layout& at, const ListeningNode& where, const std::string& purpose,
                    const std::string& token = {});

// all_gather in such a group. Of an error, also that no other node was heard of, one task is the reporter: it is
// only_here there, and reported_elsewhere at the others that have it.
Result<Values> gather_in_step(const Group& group, const std::string& value, std::chrono::milliseconds timeout,
                              const Reduce& reduce = {});

}  // namespace torchbridge
