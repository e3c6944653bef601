// MASTER_ADDR where only rank 0's node can know it: addr=iface:NAME and addr=subnet:CIDR.
#pragma once

#include <chrono>
#include <string>

#include <torchbridge/core/launcher.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/task_map.h>
#include <torchbridge/core/torch_env.h>
#include <torchbridge/net/roll_call.h>

namespace torchbridge {

// Collective over all tasks of the step. Rank 0 picks its address by the rule; the first task of each other node asks it at
// env.master, the address that its node's name has, and tells the others of its node. By other rules it returns
// env.master.host at once. Where rank 0 cannot listen there, they meet `elsewhere`. Waits at most `timeout` for nodes that start late. The error is reported_elsewhere
// where another task has the reason.
Result<std::string> agree_on_address(const LaunchFacts& facts, const TaskMap& map, const TorchEnv& env, const Options& options,
                                     std::chrono::milliseconds timeout, const MeetingPlaces& elsewhere = {});

}  // namespace torchbridge
