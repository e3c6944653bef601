// Starts ranks from within a program: what torch.multiprocessing.spawn is in Python.
#pragma once

#include <functional>

#include "bridge/run_values/run_options.h"

namespace torchbridge {

// Runs `body(rank)` in `count` children of this process, each with torchrun's variables in its
// environment and a store port of its own run, as `torchbridge run` starts a program; output,
// restarts and failures are as in `options` (of which nproc_per_node and program are not used).
// Returns its exit code: 0 where each body returned 0. When this process is killed, so are the
// ranks. Meanwhile it ignores SIGINT and SIGQUIT, which the agent handles. REQUIRES: the process
// has one thread, so it has not used libtorch's.
int spawn(int count, const std::function<int(int rank)>& body, RunOptions options = {});

}  // namespace torchbridge
