// What a launcher told this process, before anything is concluded from it.
#pragma once

#include <string>
#include <vector>

namespace torchbridge {

// How a launcher spreads ranks over nodes. Unknown: only this node's ranks can be told.
enum class Placement { kBlock, kCyclic, kPlane, kUnknown };

// Lists are in the order of the launcher's node numbers; a list that the launcher does not tell is empty.
struct LaunchFacts {
  std::string launcher;         // "slurm", "openmpi": a name of the table in launcher.cpp
  std::string job_id, step_id;  // as the launcher writes them; empty where it has none
  int restart_count = 0;        // how often the job was requeued
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;  // local_size is 0 where the launcher does not tell it
  int node_rank = 0;                   // meaningful only where tasks_per_node is known
  std::vector<std::string> nodes;      // names
  std::vector<int> tasks_per_node;
  std::vector<int> ranks_here;  // ranks on this node, ascending
  std::vector<int>
      node_of_rank;           // told by the ranks themselves, or by Slurm's controller; takes the place of a placement
  std::string first_address;  // of rank 0's node, for those who cannot look its name up; or empty
  Placement placement = Placement::kUnknown;
  int plane_size = 0;  // of Placement::kPlane
  bool heterogeneous =
      false;  // several components, of which one's placement is told, and whose nodes may come in any order
  std::vector<int> reserved_ports;  // reserved by the launcher for this step alone
  std::string node_key;             // the same for all ranks of this job on this node, and for nobody else; or empty

  // The launcher does not tell on which node each rank is, and there is more than one: the ranks must ask each other.
  bool needs_node_exchange() const {
    return tasks_per_node.empty() && node_of_rank.empty() && local_size != world_size;
  }
};

}  // namespace torchbridge
