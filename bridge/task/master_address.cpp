#include <torchbridge/task/master_address.h>

#include <torchbridge/net/address.h>
#include <torchbridge/task/first_task.h>

namespace torchbridge {
namespace {

using std::chrono::milliseconds;

// Said in place of an address where there is none; who finds the reason tells it.
constexpr const char* kNone = "none";

// Another node's later meeting at the same port must not be taken for this one.
std::string token_of(const TorchEnv& env) { return env.run_id + "/address"; }

Result<std::string> pick_address(const Layout& at, const AddressRule& rule) {
  auto address = own_address(rule);
  if (!address || at.node_count == 1 || !is_loopback(*address)) return address;
  const std::string kind = rule.kind == AddressRule::Kind::kInterface ? "iface:" : "subnet:";
  return Error{"addr=" + kind + rule.text + ": " + *address + " is a loopback address, which the other nodes cannot reach"};
}

Result<std::string> tell_nodes(const RollCall& call, const Endpoint& meeting, Result<std::string> address) {
  auto listener = listen_on({address_to_listen_on(meeting.host), meeting.port});
  if (!listener) listener = listen_elsewhere(call);
  if (!listener) return listener.error();
  auto roll = Roll::take(*listener, call);
  if (!roll) return roll.error();
  roll->answer(address ? *address : kNone);
  return address;
}

Result<std::string> ask_rank_0(const RollCall& call, const Endpoint& meeting, int node) {
  auto answer = answer_roll(meeting, call, node, "");
  if (!answer) return answer.error();
  if (*answer == kNone || *answer == kRollIncomplete) return Error::elsewhere();
  return answer;
}

// By the first task of each node.
Result<std::string> find_address(const LaunchFacts& facts, int master_node, const TorchEnv& env, const Options& options,
                                 milliseconds timeout, const MeetingPlaces& elsewhere) {
  const Layout& at = env.layout;
  auto address = at.rank == 0 ? pick_address(at, options.addr) : Result<std::string>(std::string());
  if (at.node_count == 1) return address;
  const auto host = numeric_address(env.master.host);
  if (!host) return host.error();
  const Endpoint meeting{*host, env.master.port};
  const RollCall call{.token = token_of(env),
                      .nodes = facts.nodes,
                      .master = master_node,
                      .timeout = timeout,
                      .elsewhere = elsewhere};
  return at.rank == 0 ? tell_nodes(call, meeting, std::move(address)) : ask_rank_0(call, meeting, at.node_rank);
}

}  // namespace

Result<std::string> agree_on_address(const LaunchFacts& facts, const TaskMap& map, const TorchEnv& env, const Options& options,
                                     milliseconds timeout, const MeetingPlaces& elsewhere) {
  constexpr milliseconds kGrace{5000};  // the first task of the node waits for its answer first
  if (!options.addr.depends_on_interfaces()) return env.master.host;
  const auto master_node = master_node_of(facts, map, options.ranks);
  if (!master_node) return master_node.error();
  const Layout& at = env.layout;
  return by_first_task(at, token_of(env), "here", timeout + kGrace, [&](const auto&) {
    return find_address(facts, *master_node, env, options, timeout, elsewhere);
  });
}

}  // namespace torchbridge
