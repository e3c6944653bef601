// torchbridge run: starts workers, restarts them when one fails, and reports why a run failed.
#pragma once

#include <functional>

#include "bridge/launch/launch_origin.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// The whole run, in a child of this process (guardian.h); returns the exit code: 0 where all
// workers of an attempt ended with 0; 75 where they request a requeue; that of the root cause,
// 128+signal for a signal; 127 or 126 where the program cannot be run; 1 for an error before the
// start, which is printed. Where a signal ended the run: 128+signal, also if the workers ended with
// 0 after it. REQUIRES: the process has one thread.
int run_agent(const RunOptions& options, const LaunchOrigin& origin);

// The same for workers that run `body` in a fork of this process, in place of a program; its value
// is the exit code.
int run_agent(const RunOptions& options, const LaunchOrigin& origin,
              const std::function<int()>& body);

}  // namespace torchbridge
