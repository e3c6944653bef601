// What a launcher's facts and the options make of a whole step: the one way from facts to a plan.
#pragma once

#include <torchbridge/core/endpoint.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/core/explain.h>
#include <torchbridge/core/launcher.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/core/task_map.h>
#include <torchbridge/core/torch_env.h>
#include <torchbridge/net/socket.h>

#include <chrono>
#include <optional>

namespace torchbridge {

// The same for all tasks of the step, apart from each task's own place in it.
struct StepPlan {
  LaunchFacts facts;
  TaskMap map;
  Options options;          // with what the user exported in the place of addr= and port=
  ExportedMaster exported;  // which of them were
  TorchEnv env;             // env.master is where rank 0 listens, numeric where its name resolves
  int master_node = 0;      // the node that holds rank 0
};

// MASTER_ADDR and MASTER_PORT as the user exported them, where they are not to be replaced: each
// takes the place of the option of its kind in `options`.
Result<ExportedMaster> take_exported_master(const EnvMap& environment, Options& options);

// For a launcher that names the nodes, as Slurm. Resolves a host name, so call it in the task's own
// process with the user's rights. Where the options leave the address to rank 0's node (see
// agree_on_address) it is collective, and waits for the others at most `timeout`; else an error is
// found by every task of the step alike.
Result<StepPlan> plan_step(LaunchFacts facts, const EnvMap& environment, const Options& options,
                           std::chrono::milliseconds timeout);

// For a launcher that does not: the ranks agreed on `store` among themselves.
Result<StepPlan> plan_step_at(Endpoint store, LaunchFacts facts, const EnvMap& environment,
                              const Options& options);

// On rank 0 MASTER_PORT, bound for the program to inherit (store_port.h); not open on other ranks,
// and where the user exported TORCHELASTIC_USE_AGENT_STORE=True, for an agent serves the store
// then.
Result<Socket> reserve_store_socket(const StepPlan& plan, const EnvMap& environment);

}  // namespace torchbridge
