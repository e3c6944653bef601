// Processes by their family: ancestors of this one, children of any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/env_map.h"

namespace torchbridge {

struct ProcessEntry {
  std::int64_t id = 0;
  std::string name;  // at most 15 bytes, as the kernel keeps it
  // Of slurmstepd: the step whose processes it starts, "7.0", or "7.batch" where it runs a batch
  // script. Empty of others.
  std::string step{};
};

// "7.0" of a command line "slurmstepd: [7.0]", which slurmstepd gives itself. Empty of others.
std::string step_in_title(std::string_view command_line);

// This process first, then its parent and so on, as far as /proc shows them.
std::vector<ProcessEntry> this_and_ancestors();

// Whether process 1 is the host's own, and not that of a container with process ids of its own.
bool has_process_ids_of_host();

// What the process was started with; empty where /proc does not show it, as of another user's.
EnvMap environment_of(std::int64_t id);

// As ProcessEntry::name; empty where /proc does not show the process.
std::string process_name(int id);

// State D: in the kernel, as for a device or a file system, where signals but SIGKILL, or all, have
// to wait.
bool is_in_uninterruptible_sleep(int id);

// State T: a signal has stopped it. A debugger's 't' does not count.
bool is_stopped(int id);

// When it started, in clock ticks since the boot; 0 where /proc does not show it. Another process
// that gets the same id later has a later start.
std::int64_t start_ticks(int id);

// The names of all but the first, and "slurmstepd" where this process is in the cgroup of a step,
// which a container with its own process ids does not hide.
std::vector<std::string> names_of_ancestors(const std::vector<ProcessEntry>& processes);

// The step in whose cgroup this process is, as in ProcessEntry; empty where none is seen.
std::string step_of_cgroup();

// Whether that is a step of srun, and none of a batch script or of Slurm's own.
bool is_in_step_of_slurm();

// "5.0", "5.batch", "5.extern" or "5.interactive" of a line ".../job_5/step_0/task_1" of
// /proc/PID/cgroup; empty where no line is like that. Slurm 26.05 gives a job another name there,
// its SLUID: "sEKNKTV3WPV500.0".
std::string step_in_cgroups(std::string_view cgroups);

// The children of a process as far as /proc shows them, those that have ended and are not yet
// waited for included.
std::vector<int> children_of(int id);

// All processes below one, but for `but` and what is below that. Reads the lists of children in
// /proc, and not each process of the node: empty where the kernel has no such lists, and a process
// that is started or ends in the meantime may be missing.
std::vector<int> descendants_of(int id, int but = 0);

// The CPU time that these processes and all below them have used, in seconds; those that have ended
// count as far as their parent has waited for them.
double cpu_seconds_of(const std::vector<int>& ids);

}  // namespace torchbridge
