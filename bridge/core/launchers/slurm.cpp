#include <algorithm>
#include <map>

#include "bridge/base/host_text.h"
#include "bridge/base/hostlist.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/launchers/variable_reader.h"
#include "bridge/core/step_record.h"

namespace torchbridge {
namespace {

constexpr std::int64_t kMaxId = 0xffffffff;  // job and step ids are 32 bits
// Slurm's own steps (interactive, batch, extern) have ids above.
constexpr std::int64_t kOwnSteps = 0xfffffff0;

Result<std::vector<int>> parse_ranks(std::string_view text) {
  return parse_number_list(text, kMaxRanks - 1);
}

Result<std::vector<int>> parse_ports(std::string_view text) {
  auto ports = parse_number_list(text, 65535);
  if (ports && std::find(ports->begin(), ports->end(), 0) != ports->end()) {
    return Error{formatted("list '{}': a port is from 1 to 65535", printable(text))};
  }
  return ports;
}

// "block", "cyclic:block,Pack", "plane=4" with its size in a variable of its own, or unset.
Placement placement_of(std::string_view distribution) {
  const auto first = distribution.substr(0, distribution.find_first_of(":,="));
  if (first == "block" || first.empty()) return Placement::kBlock;
  if (first == "cyclic") return Placement::kCyclic;
  if (first == "plane") return Placement::kPlane;
  return Placement::kUnknown;
}

// "ec0:10.1.0.5:ip-10-1-0-5,ec1:[fd00::5]:HOST": the names, addresses and host names of nodes of a
// cloud; "(null)" where there are none. What is not so written is left out.
std::map<std::string, std::string> parse_aliases(std::string_view text) {
  std::map<std::string, std::string> addresses;
  while (!text.empty()) {
    auto entry = take_until(text, ',');
    const std::string name(take_until(entry, ':'));
    const bool has_brackets = entry.starts_with('[');
    if (has_brackets) entry.remove_prefix(1);
    const auto address = take_until(entry, has_brackets ? ']' : ':');
    if (is_host_text(address)) addresses.emplace(name, address);
  }
  return addresses;
}

}  // namespace

bool detect_slurm(const EnvMap& environment) {
  const bool is_own_step =
      parse_integer(environment.get("SLURM_STEP_ID").value_or(""), kOwnSteps, kMaxId).has_value();
  return environment.has("SLURM_STEP_ID") && environment.has("SLURM_PROCID") &&
         environment.has("SLURM_STEP_NUM_TASKS") && !is_own_step;
}

Result<LaunchFacts> read_slurm_step(const EnvMap& environment) {
  VariableReader read(environment);
  LaunchFacts facts;
  facts.launcher = "slurm";
  facts.world_size = read.integer("SLURM_STEP_NUM_TASKS", 1, kMaxRanks);
  facts.nodes = read.list("SLURM_STEP_NODELIST", parse_hostlist);
  facts.tasks_per_node = read.list("SLURM_STEP_TASKS_PER_NODE", parse_task_counts);
  facts.reserved_ports = read.list("SLURM_STEP_RESV_PORTS", parse_ports);
  if (read.error() != nullptr) return *read.error();
  for (const char* name :
       {"SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    if (const auto there = environment.required(name); !there) return there.error();
  }
  facts.job_id = *environment.get("SLURM_JOB_ID");
  facts.step_id = *environment.get("SLURM_STEP_ID");
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    if (const auto id = environment.integer(name, 0, kMaxId); !id) return id.error();
  }
  const auto restarts = environment.integer("SLURM_RESTART_COUNT", 0, INT32_MAX);
  if (!restarts) return restarts.error();
  facts.restart_count = static_cast<int>(restarts->value_or(0));

  facts.placement = placement_of(environment.get("SLURM_DISTRIBUTION").value_or(""));
  facts.heterogeneous = environment.has("SLURM_HET_SIZE");
  const auto plane = environment.integer("SLURM_DIST_PLANESIZE", 1, kMaxRanks);
  if (!plane) return plane.error();
  facts.plane_size = static_cast<int>(plane->value_or(0));
  facts.node_addresses = parse_aliases(environment.get("SLURM_NODE_ALIASES").value_or(""));
  if (const auto record = environment.get(kStepRecordVariable)) {
    const std::string step = facts.job_id + "." + facts.step_id;
    facts.node_of_rank = node_of_rank_in(*record, step, facts.nodes, facts.world_size);
    facts.first_address = address_in(*record, step);
  }
  return facts;
}

Result<LaunchFacts> read_slurm(const EnvMap& environment) {
  auto step = read_slurm_step(environment);
  if (!step) return step;
  LaunchFacts& facts = *step;
  VariableReader read(environment);
  facts.rank = read.integer("SLURM_PROCID", 0, facts.world_size - 1);
  facts.node_rank = read.integer("SLURM_NODEID", 0, kMaxRanks);
  facts.local_rank = read.integer("SLURM_LOCALID", 0, kMaxRanks);
  facts.ranks_here = read.list("SLURM_GTIDS", parse_ranks);
  if (read.error() != nullptr) return *read.error();
  // Slurm sorts names and counts by name, but numbers the nodes of a heterogeneous step component
  // by component. Ours is the order of the lists.
  if (const auto own_name = environment.get("SLURMD_NODENAME")) {
    const auto own = std::find(facts.nodes.begin(), facts.nodes.end(), *own_name);
    if (own == facts.nodes.end()) {
      return Error{
          formatted("SLURM_STEP_NODELIST='{}' does not name this node, SLURMD_NODENAME='{}'",
                    printable(*environment.get("SLURM_STEP_NODELIST")), printable(*own_name))};
    }
    facts.node_rank = static_cast<int>(own - facts.nodes.begin());
  }
  const bool node_is_counted = facts.node_rank < static_cast<int>(facts.tasks_per_node.size());
  facts.local_size = !facts.ranks_here.empty() ? static_cast<int>(facts.ranks_here.size())
                     : node_is_counted         ? facts.tasks_per_node[facts.node_rank]
                                               : 1;
  return step;
}

}  // namespace torchbridge
