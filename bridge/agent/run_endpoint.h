// The endpoint of a run over several nodes, from the options or from the launcher that started its
// agents.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/coordination/agent_message.h"
#include "bridge/coordination/connection_proof.h"
#include "bridge/coordination/coordinator_record.h"
#include "bridge/launch/launch_origin.h"
#include "bridge/net/socket.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// Whether an agent listens at the endpoint.
enum class ListenRule {
  kNever,
  kIfOwn,     // where the endpoint is an address of this host
  kAsNode0,   // it must be one
  kAsIsSaid,  // the user says so, also where others reach this host by another address
};

// How this process takes part in a run over several nodes.
struct RunEndpoint {
  Endpoint coordinator;
  ListenRule rule = ListenRule::kNever;
  std::string advice;    // of the error where this host cannot be the endpoint's
  Socket listener;       // open in the agent that coordinates
  std::string own_host;  // its loopback address, where others reach it by the endpoint alone; else
                         // empty
  // The endpoint is each host's own address, and others reach this host by another: it listens at
  // all.
  bool is_for_others = false;
  std::string note;   // a line for the user, or empty
  std::string doubt;  // why none may coordinate there, for the line of an agent that waits
  bool is_of_launcher = false;  // whose agents have agreed on the one of them that coordinates
  std::unique_ptr<CoordinatorRecord> record;  // instead of these two: etcd, or a file
  std::string run_id;
  RunKey key = RunKey::of_run_id("");  // of the token, where there is one
  RunShape shape;
  int order = -1;                 // as in Join
  std::string node;               // as in Join
  bool is_output_shared = false;  // a launcher shows the lines of all agents in one place
  // The launcher has started one agent on each node, so it has all of its GPUs or CPUs.
  bool is_whole_node = true;
};

// Listens at the endpoint, whose host has this numeric address, where the rule says so and the port
// is free; sets `listener` and `own_host`. A name may get its address, and the host an address,
// after the start: to be tried again where nobody listens there. An error by kAsNode0 and
// kAsIsSaid.
Status listen_at_endpoint(RunEndpoint& run, const std::string& address);

// The launcher's tasks as this process finds them; 0 where no launcher started it.
struct LaunchedTask {
  int rank = 0, count = 0;
  // In which a user has typed this command, which the other tasks do not run.
  bool is_shell = false;
  bool has_several_nodes = false;    // as far as the launcher gives it
  std::vector<std::string> nodes{};  // their names, where the launcher gives them
  // Of this node, where it may have started others on it, as in Join; else empty.
  std::string node{};
  bool is_whole_node = true;  // as in RunEndpoint, as far as the launcher gives it
};
Result<LaunchedTask> launched_task(const LaunchOrigin& origin);

// Whether the run is over several nodes: --nnodes allows more than one, or the launcher started
// several tasks. An error where it started more or fewer than --nnodes allows, which with --nnodes
// 1 would each be a run of its own.
Result<bool> has_several_agents(const RunOptions& options, const LaunchedTask& task);

// The line of core/other_ranks.h for an agent of a run on one node; nothing where the user asked
// for such a run, or a launcher or another agent started this one. An error where a variable says
// that there are others.
Result<std::string> sign_of_other_agents(const RunOptions& options, const LaunchOrigin& origin,
                                         const LaunchedTask& task);

// With --rdzv-endpoint or --master-addr from the options, as torchrun; else from the launcher,
// which makes the call collective over its tasks, and errors may be reported_elsewhere. The token
// is that of the options, of kTokenVariable, or what the launcher gave its tasks alone. REQUIRES:
// has_several_agents.
Result<RunEndpoint> find_run_endpoint(const RunOptions& options, const LaunchOrigin& origin,
                                      const LaunchedTask& task);

}  // namespace torchbridge
