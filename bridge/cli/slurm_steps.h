// Where the steps of a Slurm job have their coordinator, from outside of the job.
#pragma once

#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {

// "123" or "123.0", as squeue prints it.
bool is_slurm_job(const std::string& text);

struct StepCoordinator {
  Endpoint endpoint;
  std::string run_id;  // unless the run was given another
};

// That of each running step of the job, or of the one step: the first node of the step, and the
// port that
// Slurm reserved for it or that follows from job and step (core/endpoint.h). Steps that were given
// another address or port (addr=, port=) are elsewhere. Asks scontrol; an error has what it prints.
Result<std::vector<StepCoordinator>> coordinators_of_job(const std::string& job);

// From the output of `scontrol show step --oneliner` and the number of requeues; lines that name no
// nodes are left out.
Result<std::vector<StepCoordinator>> coordinators_in(const std::string& steps, int requeues,
                                                     PortRange ephemeral);

}  // namespace torchbridge
