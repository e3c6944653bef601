// How this process was started: read once, in main, and passed down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launcher.h"
#include "bridge/core/nested_launch.h"
#include "bridge/core/torch_env.h"
#include "bridge/host/process_tree.h"

namespace torchbridge {

// The end of a line about variables that may be of ranks which a script starts inside each task.
inline constexpr char kForRanksInside[] =
    "; for ranks inside each task: torchbridge run --standalone";

struct LaunchOrigin {
  LaunchOrigin() = default;
  // `environment` is this process's; that of another process with an empty list of `processes`.
  explicit LaunchOrigin(EnvMap environment,
                        std::vector<ProcessEntry> processes = this_and_ancestors());

  EnvMap environment;                   // without what torchbridge set for an outer launch
  std::vector<ProcessEntry> processes;  // this one, then those above it, as far as /proc shows them
  // /proc shows the step of Slurm above this process, or in whose cgroup it is.
  bool is_seen_in_step = false;
  const Launcher* launcher = nullptr;  // the innermost; null without one
  // What it gives; PALS by the file with the nodes of all ranks, where it can be read. Nothing
  // without a launcher, or with an error.
  std::optional<LaunchFacts> facts;
  Error facts_error;  // its variables are wrong, or contradict those of another launcher
  SetBy set_by = SetBy::kOthers;  // RANK and the related variables
  // By a script or another launcher inside a task, for which torchbridge set others: another number
  // of ranks, or inside the only task another rank.
  bool is_set_inside = false;
  // RANK and the related variables. An error where one is missing or wrong, or where they were
  // exported outside the launcher and so hold for none of its ranks.
  Result<TorchEnv> given = Error{};
  // As far as it is known without a complete launch, so that one rank can report an error for all;
  // 0 where it is not known.
  int rank = 0;

  // Whether this is the rank that the launcher gives this process.
  bool is_launchers(const Layout& at) const {
    return facts && !is_set_inside && at.rank == facts->rank && at.world_size == facts->world_size;
  }
  bool is_set_by_us() const { return set_by < SetBy::kTorchrun; }
  // mpirun ends all ranks when one has failed.
  bool is_of_mpirun() const { return launcher && launcher->kind == Launcher::Kind::kMpi; }
  // run_id_of() the facts; "none" without them.
  std::string launch() const { return facts ? run_id_of(*facts) : "none"; }

 private:
  void find_launcher();
  void leave_task();
  void take_facts();
  void find_setter();
};

// Of variables that the program gives or completes: as LaunchOrigin::given. Accepted are: the
// launcher's own rank; what torchbridge set for this launch; and torchrun agents, one on each rank,
// whose workers count the agents as groups. A task of a resource manager may also run a torchrun of
// its own, independent of the others. The only rank of a launcher may run a script, or a launcher
// without variables of its own, that starts ranks.
Result<TorchEnv> given_by(const EnvMap& environment, const LaunchOrigin& origin);

// For an agent, which gives its workers others: without ranks and sizes that a user exported, and
// that are not the launcher's.
LaunchOrigin origin_of_agent(const LaunchOrigin& origin);

// Whether this process has the terminal of `srun --pty`, as one task of the step has: ending the
// step ends what a user types there.
bool has_terminal_of_step(const EnvMap& environment);

// Whether a user has typed this command in the shell that is such a task. The other tasks do not
// run it.
bool is_typed_in_shell_of_step(const EnvMap& environment);

// Of such a command: the step has `tasks`.
Error typed_in_shell_of_step(int tasks);

}  // namespace torchbridge
