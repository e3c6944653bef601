// The facts that a launcher gives this process, before anything is computed from them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace torchbridge {

constexpr int kMaxRanks = 10'000'000;  // of any launcher; keeps sums of counts far from overflow

// How a launcher distributes ranks over nodes. Unknown: only this node's ranks are known.
enum class Placement { kBlock, kCyclic, kPlane, kUnknown };

// Lists are in the order of the launcher's node numbers; a list that the launcher does not give is
// empty.
struct LaunchFacts {
  std::string launcher;         // "slurm", "openmpi": a name of the table in launcher.cpp
  std::string job_id, step_id;  // as the launcher writes them; empty where it has none
  int restart_count = 0;        // how often the job was requeued
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;  // local_size is 0 where the launcher does not give it
  int node_rank = 0;                   // meaningful only where tasks_per_node is known
  std::vector<std::string> nodes;      // names
  std::vector<int> tasks_per_node;
  std::vector<int> ranks_here;  // ranks on this node, ascending
  // By rank; from an exchange of the ranks, or from Slurm's controller. Replaces `placement` where
  // it is not empty.
  std::vector<int> node_of_rank;
  std::string first_address;  // of rank 0's node, for nodes that cannot resolve its name; or empty
  // Of nodes whose names may not resolve, by these names.
  std::map<std::string, std::string> node_addresses;
  Placement placement = Placement::kUnknown;
  int plane_size = 0;  // of Placement::kPlane
  // The step has several components: `placement` is that of one, and their nodes may be in any
  // order.
  bool heterogeneous = false;
  std::vector<int> reserved_ports;  // reserved by the launcher for this step alone
  std::string node_key;  // the same for all ranks of this job on this node, and for no other
                         // process; or empty

  // As far as the launcher gives it.
  bool has_several_nodes() const {
    return nodes.size() > 1 || tasks_per_node.size() > 1 ||
           (local_size > 0 && local_size < world_size);
  }

  // There are several nodes, and the launcher does not give the node of each rank: the ranks must
  // exchange them.
  bool needs_node_exchange() const {
    return tasks_per_node.empty() && node_of_rank.empty() && local_size != world_size;
  }
};

}  // namespace torchbridge
