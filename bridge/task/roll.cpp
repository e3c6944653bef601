#include <torchbridge/task/roll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <torchbridge/core/explain.h>
#include <torchbridge/host/machine.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/many_descriptors.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/task/first_task.h>

namespace torchbridge {
namespace {

// Large steps do not start on all nodes at the same instant, and other plugins may be at work on some of them.
constexpr int kPatienceS = 600, kExplainPatienceS = 1;
constexpr std::chrono::milliseconds kPatiencePerNode{1};
// Who does not come is told by rank 0. If it is silent the first of the others speaks, and has this time until all end.
constexpr std::chrono::milliseconds kTurn{2000};
constexpr const char *kAllHere = "all here", *kSomeFailed = "some failed";

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
  return Error::elsewhere();
}

// The word of a task, or of a node for its tasks, is its facts, or this and why it cannot go on.
constexpr std::string_view kFailed = "failed\n";

// Empty where it goes on.
std::string failure_in(const std::string& word) { return word.starts_with(kFailed) ? word.substr(kFailed.size()) : std::string(); }

std::string word_of_this_task(const StepPlan& plan, const EnvMap& environment, const Options& options, const std::string& failure) {
  if (!failure.empty()) return std::string(kFailed) + failure;
  return (options.explain ? facts_of_this_task(environment, plan.master) : NodeFacts()).text();
}

// The first of the tasks that cannot go on speaks for all.
std::string word_of_node(const std::vector<std::string>& words) {
  std::vector<NodeFacts> tasks;
  for (const auto& word : words) {
    if (word.starts_with(kFailed)) return word;
    tasks.push_back(NodeFacts::from(word));
  }
  return NodeFacts::of_tasks(tasks).text();
}

// On rank 0, which has reported its own failure already.
void report(const MeetingWords& words, const std::string& failure) {
  if (words.report && words.failure.empty()) words.report(failure);
}

// On rank 0. A port that it failed to get is another step's, which may be about to listen there.
Result<Socket> listen_for_nodes(const Endpoint& master, const std::string& failure) {
  if (!failure.empty() && !hold_port(master.port)) return Error{failure};
  return listen_on({address_to_listen_on(master.host), master.port});
}

// `own` is the word of rank 0's node, `failure` what is in it.
Result<std::string> take_roll(const StepPlan& plan, const RollCall& call, const Endpoint& master, const std::string& own, std::string failure,
                              const Options& options, const MeetingWords& words) {
  const ManyDescriptors descriptors;
  auto listener = listen_for_nodes(master, words.failure);
  if (!listener && !words.report) return listener.error();
  if (!listener) {
    if (failure.empty()) failure = listener.error().message;
    listener = listen_elsewhere(call);
  }
  if (!failure.empty()) report(words, failure);
  if (!listener) return Error::elsewhere();
  auto roll = Roll::take(*listener, call);
  if (!roll) return failure.empty() ? Error{roll.error().message + words.hint} : Error::elsewhere();
  std::vector<NodeFacts> nodes;
  for (const auto& word : roll->texts()) {
    if (failure.empty() && word.starts_with(kFailed)) report(words, failure = failure_in(word));
    nodes.push_back(NodeFacts::from(word));
  }
  roll->answer(failure.empty() ? kAllHere : kSomeFailed);
  if (!failure.empty()) return Error::elsewhere();
  nodes[plan.master_node] = NodeFacts::from(own);
  return options.explain ? explain(plan.facts, plan.map, options, plan.env, plan.master, nodes) : std::string();
}

// By the first task of each node.
Result<std::string> meet_other_nodes(const StepPlan& plan, const std::string& own, const Options& options, const MeetingWords& words) {
  const Layout& at = plan.env.layout;
  std::string failure = failure_in(own);
  if (at.node_count == 1 && !failure.empty()) {
    report(words, failure);
    return Error::elsewhere();
  }
  if (at.node_count == 1 && !options.explain) return std::string();
  const auto host = numeric_address(plan.master.host);
  if (!host && !words.report) {
    if (at.rank != 0) std::this_thread::sleep_for(kTurn);  // rank 0 says it where nobody knows the name
    return told_in_turn(plan, host.error());
  }
  const Endpoint master{host ? *host : plan.master.host, plan.master.port};
  const RollCall call{.token = plan.env.run_id + words.secret,
                      .nodes = plan.facts.nodes,
                      .master = plan.master_node,
                      .timeout = patience_of(options, at.node_count),
                      .missing = may_speak(plan) ? words.waiting : nullptr,
                      .elsewhere = words.elsewhere};
  if (at.rank == 0) return take_roll(plan, call, master, own, std::move(failure), options, words);
  const auto answer = answer_roll(master, call, at.node_rank, own);
  if (!answer && !failure.empty()) return Error{failure};  // nobody else knows it
  if (!answer) return told_in_turn(plan, {host ? answer.error().message + words.hint : host.error().message});
  if (*answer != kAllHere) return Error::elsewhere();
  return std::string();
}

}  // namespace

Result<std::string> meet_nodes(const StepPlan& plan, const EnvMap& environment, const Options& options,
                               const MeetingWords& words) {
  constexpr std::chrono::seconds kGrace{10};  // the first task of the node hears at its timeout what went wrong elsewhere
  const Layout& at = plan.env.layout;
  if (!words.failure.empty() && at.rank == 0) words.report(words.failure);  // at once: others may be long in coming
  const std::string own = word_of_this_task(plan, environment, options, words.failure);
  const auto met = by_first_task(at, plan.env.run_id + "/meeting" + words.secret, own, patience_of(options, at.node_count) + kGrace,
                                 [&](const std::vector<std::string>& texts) { return meet_other_nodes(plan, word_of_node(texts), options, words); });
  if (!met || at.local_rank == 0) return met;
  return std::string();
}

}  // namespace torchbridge
