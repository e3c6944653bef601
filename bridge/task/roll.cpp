#include <torchbridge/task/roll.h>

#include <torchbridge/core/explain.h>
#include <torchbridge/host/machine.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/roll_call.h>

namespace torchbridge {
namespace {

// Large steps do not start on all nodes at the same instant.
constexpr std::chrono::milliseconds kPatience{1000}, kPatiencePerNode{1};

NodeFacts facts_of_this_node(const EnvMap& environment, const std::string& master) {
  const auto cpus = allowed_cpus();
  return {std::string(environment.get("CUDA_VISIBLE_DEVICES").value_or("")), cpus ? cpu_list_text(*cpus) : "",
          interface_towards(master)};
}

Result<std::string> take_roll(const StepPlan& plan, const RollCall& call, const Endpoint& master, const NodeFacts& own,
                              const Options& options) {
  const auto listener = listen_on(master);
  if (!listener) return listener.error();
  auto roll = Roll::take(*listener, call);
  if (!roll) return roll.error();
  std::vector<NodeFacts> nodes;
  for (const auto& text : roll->texts()) nodes.push_back(NodeFacts::from(text));
  nodes[plan.master_node] = own;
  roll->answer("all here");
  return explain(plan.facts, plan.map, options, plan.env, plan.master, nodes);
}

}  // namespace

Result<std::string> meet_nodes(const StepPlan& plan, const EnvMap& environment, const Options& options) {
  const Layout& at = plan.env.layout;
  if (at.local_rank != 0) return std::string();
  const auto host = numeric_address(plan.master.host);
  if (!host) return host.error();
  const Endpoint master{*host, plan.master.port};
  const RollCall call{.token = plan.env.run_id,
                      .nodes = plan.facts.nodes,
                      .master = plan.master_node,
                      .timeout = kPatience + kPatiencePerNode * at.node_count};
  const NodeFacts own = facts_of_this_node(environment, master.host);
  if (at.rank == 0) return take_roll(plan, call, master, own, options);
  const auto answer = answer_roll(master, call, at.node_rank, own.text());
  if (!answer) return answer.error();
  if (*answer == kRollIncomplete) return Error{};  // rank 0 has told it
  return std::string();
}

}  // namespace torchbridge
