// From the environment of this process to that of the program it shall become.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/options.h>
#include <torchbridge/core/result.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/task/step_plan.h>
#include <torchbridge/task/task_environment.h>

namespace torchbridge {

struct Prepared {
  Options options;
  // Nothing where RANK and its companions are set already: the program then gets the environment as it is.
  std::optional<StepPlan> plan;
  TaskEnvironment task;
  Socket port;  // on rank 0 MASTER_PORT, for the program to inherit; not open elsewhere
};

// `program` will inherit the port; nobody does where it is empty. `list` is that of --torch-env, which wins over the variable TORCHBRIDGE_OPTIONS. Under
// launchers that do not tell everything, all ranks must call it. `own_trouble`: the error may be this rank's alone, its devices say,
// so that it must tell it itself; others every rank finds alike.
Result<Prepared> prepare(const EnvMap& environment, const std::string& list, const std::vector<std::string>& program,
                         std::chrono::milliseconds timeout, bool& own_trouble);

}  // namespace torchbridge
