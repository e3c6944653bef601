// The plan of a whole step, made from a launcher's facts and the options. Every path from facts to
// a plan is here.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/task_map.h"
#include "bridge/core/torch_env.h"
#include "bridge/net/host_names.h"
#include "bridge/net/socket.h"
#include "bridge/step/explain.h"

namespace torchbridge {

// The same for all tasks of the step, except env.layout and the facts about this task.
struct StepPlan {
  LaunchFacts facts;
  TaskMap map;
  LaunchOptions options;  // of StepOptions
  ExportedMaster exported;
  TorchEnv env;         // env.master is where rank 0 listens, numeric where its name resolves
  int master_node = 0;  // the node that holds rank 0
  HostNames names{};    // for what follows: reserve_store_socket, task_environment, check_nodes
  std::string token{};  // of StepOptions
};

// The options of a step. MASTER_ADDR and MASTER_PORT that the user exported replace addr= and
// port=, unless override is given. The token is that of kTokenVariable, which the user may have
// exported; launchers may give another one.
struct StepOptions {
  LaunchOptions options;
  ExportedMaster exported;
  std::string token;  // a secret that the tasks of the step share; empty where they have none

  // Nothing unless both are exported.
  std::optional<Endpoint> exported_endpoint() const;
};
Result<StepOptions> step_options(const EnvMap& environment, const LaunchOptions& options);

// An error where `host`, of an exported MASTER_ADDR, is each node's own although the ranks are on
// several nodes.
Status check_exported_host(const std::string& host, const LaunchFacts& facts);

// As with MASTER_ADDR=$(hostname) in each task: a task of another node than rank 0's would wait for
// a store at its own. Loopback addresses are check_exported_host()'s.
Status check_is_not_own(const StepOptions& step, const LaunchFacts& facts, const HostNames& names);

// `store` is the address that the ranks exchanged; nothing for a launcher that names the nodes, as
// Slurm. In that case it resolves a host name; and where only rank 0's node has the address (see
// agree_on_address) it is collective, and waits for the others at most `timeout`.
Result<StepPlan> plan_step(LaunchFacts facts, const StepOptions& step,
                           std::optional<Endpoint> store, std::chrono::milliseconds timeout,
                           HostNames names = {});

// Every name that the tasks of this node need for the plan of a step whose launcher names the
// nodes: on rank 0's node the host's own, and as the last that of the host which addr= leads to. A
// task's own position among the facts is not used. `own_node` is the launcher's name of this node;
// empty: it may be that of rank 0.
std::vector<std::string> names_of_step(const LaunchFacts& facts, const StepOptions& step,
                                       const std::string& own_node);

// These names, looked up now. Where that of rank 0's node does not resolve, and the facts have no
// address of it, it gets the one that `node_address` finds for it, if that is not empty.
HostNames look_up_names_of_step(
    const LaunchFacts& facts, const StepOptions& step, const std::string& own_node,
    const std::function<std::string(const std::string& node)>& node_address);

// On rank 0 MASTER_PORT, bound for the program to inherit (store_port.h). Not open on other ranks,
// nor where the user exported TORCHELASTIC_USE_AGENT_STORE=True, because an agent serves the store
// then, nor where the user exported a part of the only rank's endpoint. Where the only rank of a
// step finds the port taken, the plan gets another one that its options allow: no other rank has to
// know it.
Result<Socket> reserve_store_socket(StepPlan& plan, const EnvMap& environment);

}  // namespace torchbridge
