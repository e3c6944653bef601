#include <torchbridge/task/roll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <torchbridge/core/explain.h>
#include <torchbridge/host/machine.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/many_descriptors.h>
#include <torchbridge/net/roll_call.h>
#include <torchbridge/task/first_task.h>

namespace torchbridge {
namespace {

// Large steps do not start on all nodes at the same instant, and other plugins may be at work on some of them.
constexpr int kPatienceS = 600, kExplainPatienceS = 1;
constexpr std::chrono::milliseconds kPatiencePerNode{1};
// Who does not come is told by rank 0. If it is silent the first of the others speaks, and has this time until all end.
constexpr std::chrono::milliseconds kTurn{2000};

std::chrono::milliseconds patience_of(const Options& options, int nodes) {
  const int given = options.check.value_or(options.explain ? kExplainPatienceS : kPatienceS);
  return std::chrono::seconds(std::max(given, kExplainPatienceS)) + kPatiencePerNode * nodes;
}

NodeFacts facts_of_this_task(const EnvMap& environment, const Endpoint& master) {
  const auto cpus = allowed_cpus();
  const auto host = numeric_address(master.host);
  return {std::string(environment.get("CUDA_VISIBLE_DEVICES").value_or("")), cpus ? cpu_list_text(*cpus) : "",
          host ? interface_towards(*host) : ""};
}

bool may_speak(const StepPlan& plan) {
  const int node = plan.env.layout.node_rank, first = plan.master_node == 0 ? 1 : 0;
  return node == plan.master_node || node == first;
}

Error told_in_turn(const StepPlan& plan, const Error& error) {
  if (may_speak(plan)) return error;
  std::this_thread::sleep_for(kTurn);
  return {};
}

Result<std::string> take_roll(const StepPlan& plan, const RollCall& call, const Endpoint& master, const NodeFacts& own,
                              const Options& options, const std::string& hint) {
  const ManyDescriptors descriptors;
  const auto listener = listen_on({address_to_listen_on(master.host), master.port});
  if (!listener) return listener.error();
  auto roll = Roll::take(*listener, call);
  if (!roll) return Error{roll.error().message + hint};
  std::vector<NodeFacts> nodes;
  for (const auto& text : roll->texts()) nodes.push_back(NodeFacts::from(text));
  nodes[plan.master_node] = own;
  roll->answer("all here");
  return options.explain ? explain(plan.facts, plan.map, options, plan.env, plan.master, nodes) : std::string();
}

// By the first task of each node.
Result<std::string> meet_other_nodes(const StepPlan& plan, const NodeFacts& own, const Options& options, const MeetingWords& words) {
  const Layout& at = plan.env.layout;
  if (at.node_count == 1 && !options.explain) return std::string();
  const auto host = numeric_address(plan.master.host);
  if (!host) {
    if (at.rank != 0) std::this_thread::sleep_for(kTurn);  // rank 0 says it where nobody knows the name
    return told_in_turn(plan, host.error());
  }
  const Endpoint master{*host, plan.master.port};
  const RollCall call{.token = plan.env.run_id + words.secret,
                      .nodes = plan.facts.nodes,
                      .master = plan.master_node,
                      .timeout = patience_of(options, at.node_count),
                      .missing = may_speak(plan) ? words.waiting : nullptr};
  if (at.rank == 0) return take_roll(plan, call, master, own, options, words.hint);
  const auto answer = answer_roll(master, call, at.node_rank, own.text());
  if (!answer) return told_in_turn(plan, {answer.error().message + words.hint});
  if (*answer == kRollIncomplete) return Error{};  // rank 0 has told it
  return std::string();
}

}  // namespace

Result<std::string> meet_nodes(const StepPlan& plan, const EnvMap& environment, const Options& options,
                               const MeetingWords& words) {
  constexpr std::chrono::seconds kGrace{10};  // the first task of the node hears at its timeout what went wrong elsewhere
  const Layout& at = plan.env.layout;
  const NodeFacts own = options.explain ? facts_of_this_task(environment, plan.master) : NodeFacts();
  const auto met = by_first_task(at, plan.env.run_id + "/meeting" + words.secret, own.text(), patience_of(options, at.node_count) + kGrace,
                                 [&](const std::vector<std::string>& texts) {
                                   std::vector<NodeFacts> tasks;
                                   for (const auto& text : texts) tasks.push_back(NodeFacts::from(text));
                                   return meet_other_nodes(plan, NodeFacts::of_tasks(tasks), options, words);
                                 });
  if (!met || at.local_rank == 0) return met;
  return std::string();
}

}  // namespace torchbridge
