#include "bridge/step/node_check.h"

#include <algorithm>
#include <chrono>

#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/host/read_machine.h"
#include "bridge/host/small_memory.h"
#include "bridge/net/address.h"
#include "bridge/step/step_group.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;

// The tasks of a large step do not start on all nodes at the same instant: a millisecond more for
// each node.
milliseconds timeout_of(const LaunchOptions& options, int nodes) {
  const int check_s = options.check.value_or(0);
  return std::chrono::seconds(check_s > 0 ? check_s : kDefaultCheckS) + milliseconds(nodes);
}

NodeFacts facts_of_this_task(const EnvMap& environment, const std::string& master) {
  const auto cpus = allowed_cpus();
  return {std::string(environment.get("CUDA_VISIBLE_DEVICES").value_or("")),
          cpus ? cpu_list_text(*cpus) : "", interface_towards(master), small_memory()};
}

// The message for nodes of which not all ranks arrived.
std::string missing_nodes(const StepPlan& plan, const std::vector<bool>& arrived,
                          milliseconds timeout) {
  constexpr int kShown = 8;
  const auto& tasks = plan.map.tasks_per_node();
  std::string names;
  int count = 0;
  for (int node = 0, member = 0; node < plan.map.node_count(); member += tasks[node++]) {
    if (std::all_of(arrived.begin() + member, arrived.begin() + member + tasks[node],
                    [](bool rank_arrived) { return rank_arrived; }))
      continue;
    if (++count <= kShown) names += (count == 1 ? "" : ", ") + plan.facts.nodes[node];
  }
  if (count > kShown) names += formatted(" and {} more", count - kShown);
  return formatted("no message within {} from {}: is {} reachable from there?", seconds(timeout),
                   names, plan.facts.nodes[plan.master_node]);
}

// One entry a node, of its tasks in the order of local ranks.
std::vector<NodeFacts> facts_by_node(const StepPlan& plan, const Values& values) {
  std::vector<NodeFacts> nodes;
  auto value = values.begin();
  for (const int tasks : plan.map.tasks_per_node()) {
    std::vector<NodeFacts> of_node;
    for (int i = 0; i < tasks; ++i) of_node.push_back(NodeFacts::from(*value++));
    nodes.push_back(NodeFacts::of_tasks(of_node));
  }
  return nodes;
}

}  // namespace

Result<std::string> check_nodes(const StepPlan& plan, const EnvMap& environment,
                                const NodeCheck& check) {
  const Layout& at = plan.env.layout;
  const LaunchOptions& options = plan.options;
  const milliseconds timeout = timeout_of(options, at.node_count);
  const auto host = numeric_address(plan.env.master.host, plan.names);
  if (!host) return Error{.message = host.error().message, .only_here = true};
  // Members are numbered node by node, so that the listener finds the tasks of a node together.
  Layout member = at;
  member.rank = plan.map.ranks_before(at.node_rank) + at.local_rank;
  ListeningNode where{
      .node = plan.master_node, .address = *host, .listen_at = {}, .ports = {plan.env.master.port}};
  if (at.node_rank == plan.master_node) where.listen_at = address_to_listen_on(*host, plan.names);
  BootstrapGroup group = group_of_step(plan.facts, member, where, "check", plan.token);
  if (at.node_count > 1) {
    group.missing = [&](const std::vector<bool>& arrived) {
      return missing_nodes(plan, arrived, timeout) + check.hint;
    };
  }
  std::string table;  // on the first task of rank 0's node, which is rank 0
  const std::string own =
      options.explain ? facts_of_this_task(environment, *host).text() : std::string();
  const auto checked = all_gather_in_step(group, own, timeout, [&](Values values) {
    if (options.explain)
      table = check.describe(plan.facts, plan.map, plan.options, plan.exported, plan.env,
                             facts_by_node(plan, values));
    return Result<Values>(Values{"all here"});
  });
  if (checked) return table;
  Error error = checked.error();
  const auto& nodes = plan.facts.nodes;
  if (error.only_here && at.node_rank != plan.master_node)
    error.message =
        formatted("node {} cannot reach the node of rank 0, {}: {}{}", nodes[at.node_rank],
                  nodes[plan.master_node], error.message, check.hint);
  return error;
}

}  // namespace torchbridge
