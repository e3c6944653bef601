// What a launcher's facts and the options make of a whole step: the one way from facts to a plan.
#pragma once

#include <chrono>
#include <optional>

#include "bridge/core/endpoint.h"
#include "bridge/base/env_map.h"
#include "bridge/step/explain.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/base/result.h"
#include "bridge/core/task_map.h"
#include "bridge/core/torch_env.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// The same for all tasks of the step, apart from each task's own place in it.
struct StepPlan {
  LaunchFacts facts;
  TaskMap map;
  LaunchOptions options;  // of StepOptions
  ExportedMaster exported;
  TorchEnv env;         // env.master is where rank 0 listens, numeric where its name resolves
  int master_node = 0;  // the node that holds rank 0
};

// The options of a step, in which MASTER_ADDR and MASTER_PORT as the user exported them, where they are not to be
// replaced, take the place of addr= and port=.
struct StepOptions {
  LaunchOptions options;
  ExportedMaster exported;  // which of them were

  // Where both were exported.
  std::optional<Endpoint> exported_endpoint() const;
};
Result<StepOptions> step_options(const EnvMap& environment, const LaunchOptions& options);

// `store` is what the ranks agreed on among themselves; nothing for a launcher that names the nodes, as Slurm. Then it
// resolves a host name, so call it in the task's own process with the user's rights; and where the options leave the
// address to rank 0's node (see agree_on_address) it is collective, and waits for the others at most `timeout`.
Result<StepPlan> plan_step(LaunchFacts facts, const StepOptions& step, std::optional<Endpoint> store,
                           std::chrono::milliseconds timeout);

// On rank 0 MASTER_PORT, bound for the program to inherit (store_port.h); not open on other ranks,
// and where the user exported TORCHELASTIC_USE_AGENT_STORE=True, for an agent serves the store
// then.
Result<Socket> reserve_store_socket(const StepPlan& plan, const EnvMap& environment);

}  // namespace torchbridge
