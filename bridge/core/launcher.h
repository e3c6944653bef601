// What a launcher told this process, before anything is concluded from it.
#pragma once

#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>

namespace torchbridge {

// How a launcher spreads ranks over nodes. Unknown: only this node's ranks can be told.
enum class Placement { kBlock, kCyclic, kPlane, kUnknown };

// Lists are in the order of the launcher's node numbers; a list that the launcher does not tell is empty.
struct LaunchFacts {
  std::string launcher;                 // "slurm", "openmpi": a name of the table in launcher.cpp
  std::string job_id, step_id;          // as the launcher writes them; empty where it has none
  int restart_count = 0;                // how often the job was requeued
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;   // local_size is 0 where the launcher does not tell it
  int node_rank = 0;                    // meaningful only where tasks_per_node is known
  std::vector<std::string> nodes;       // names
  std::vector<int> tasks_per_node;
  std::vector<int> ranks_here;          // ranks on this node, ascending
  std::vector<int> node_of_rank;        // told by the ranks themselves, or by Slurm's controller; takes the place of a placement
  std::string first_address;            // of rank 0's node, for those who cannot look its name up; or empty
  Placement placement = Placement::kUnknown;
  int plane_size = 0;                   // of Placement::kPlane
  bool heterogeneous = false;           // several components, of which one's placement is told, and whose nodes may come in any order
  std::vector<int> reserved_ports;      // reserved by the launcher for this step alone
  std::string node_key;                 // the same for all ranks of this job on this node, and for nobody else; or empty

  // The launcher does not tell on which node each rank is, and there is more than one: the ranks must ask each other.
  bool needs_node_exchange() const { return tasks_per_node.empty() && node_of_rank.empty() && local_size != world_size; }
};

// A launcher is recognised by variables that it sets for the processes it starts, not by those of the job around them.
struct Launcher {
  // mpirun and its like are started inside the steps of resource managers, which their ranks inherit.
  enum class Kind { kMpi, kResourceManager };

  const char* name;
  Kind kind;
  bool (*detect)(const EnvMap&);
  Result<LaunchFacts> (*read)(const EnvMap&);
};

// The innermost launcher of the process, or null: ranks of an mpirun inside salloc inherit SLURM_*. Variables alone do not
// tell an srun inside an mpirun's rank from the reverse; `process_id`, the caller's own, does where srun started the caller
// itself and not by way of a script.
const Launcher* innermost_launcher(const EnvMap& environment, std::int64_t process_id = 0);

// The same, but an error that shows both sides where two mpiruns claim the process and differ in its rank or in the number
// of ranks: nothing tells which of them is inside the other.
Result<const Launcher*> find_launcher(const EnvMap& environment, std::int64_t process_id = 0);

}  // namespace torchbridge
