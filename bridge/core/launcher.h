// The table of launchers, and which of them started this process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {

// A launcher is recognised by variables that it sets for the processes it starts, not by those of
// the job around them.
struct Launcher {
  // mpirun and its like are started inside the steps of resource managers, which their ranks
  // inherit.
  enum class Kind { kMpi, kResourceManager };

  const char* name;
  Kind kind;
  bool (*detect)(const EnvMap&);
  Result<LaunchFacts> (*read)(const EnvMap&);
  std::string_view job_variables = {};  // that differ between its jobs, separated by spaces
  // How names of its processes that start ranks begin, separated by spaces.
  std::string_view processes = {};
};

// The innermost launcher of the process, or null: ranks of an mpirun inside salloc inherit SLURM_*.
// Variables alone do not distinguish an srun inside an mpirun's rank from the reverse;
// `process_id`, the caller's own, does where srun started the caller itself and not through a
// script.
const Launcher* innermost_launcher(const EnvMap& environment, std::int64_t process_id = 0);

// What the innermost launcher gives. An error with both where the variables of two mpiruns differ
// in the rank or in the number of ranks: it is not known which mpirun is inside the other.
Result<LaunchFacts> read_launcher(const Launcher& innermost, const EnvMap& environment);

// The same text for processes with the same job variables of all launchers; empty where none of
// them is set.
std::string job_key(const EnvMap& environment);

// The launcher that has a process of this name, to start ranks; or null.
const Launcher* launcher_with_process(std::string_view name);

// Whether a process of this name is one of a launcher of kind kMpi that starts ranks.
bool starts_ranks(std::string_view process_name);

}  // namespace torchbridge
