#include "bridge/step/step_plan.h"

#include <algorithm>

#include "bridge/base/host_text.h"
#include "bridge/base/message_text.h"
#include "bridge/core/agent_command.h"
#include "bridge/core/exported_values.h"
#include "bridge/core/layout.h"
#include "bridge/net/address.h"
#include "bridge/step/step_group.h"
#include "bridge/step/store_port.h"

namespace torchbridge {
namespace {

// Sent instead of an address where rank 0 has none, and by the other ranks, whose values are not
// used.
constexpr const char* kNone = "none";

Result<std::string> pick_address(const Layout& at, const AddressRule& rule,
                                 const HostNames& names) {
  auto address = own_address(rule, names);
  if (!address || at.node_count == 1 || !is_loopback(*address)) return address;
  const std::string kind = rule.kind == AddressRule::Kind::kInterface ? "iface:" : "subnet:";
  return Error{formatted("addr={}{}: {} is a loopback address, which the other nodes cannot reach",
                         kind, rule.text, *address)};
}

// MASTER_ADDR where only rank 0's node can know it: addr=iface:NAME and addr=subnet:CIDR.
// Collective over all tasks of the step. Rank 0 selects its address by the rule and sends it to the
// others, which connect to `store`, the address of its node's name. By rules that need no interface
// it returns store.host at once. Waits at most `timeout` for nodes that start late. Where rank 0
// has no such address the others' error is reported_elsewhere. Without a token another user could
// answer in rank 0's place.
Result<std::string> agree_on_address(const LaunchFacts& facts, const TaskMap& map, const Layout& at,
                                     const Endpoint& store, const LaunchOptions& options,
                                     std::chrono::milliseconds timeout, const HostNames& names,
                                     const std::string& token) {
  if (!options.addr.depends_on_interfaces()) return store.host;
  const auto node = master_node_of(facts, map, options.ranks);
  if (!node) return node.error();
  // On one node nothing is sent over TCP.
  const auto where = at.node_count == 1 ? Result<ListeningNode>(ListeningNode())
                                        : listening_node(facts, map, options, *node, store, names);
  if (!where) return Error{.message = where.error().message, .only_here = true};
  const auto own =
      at.rank == 0 ? pick_address(at, options.addr, names) : Result<std::string>(kNone);
  const auto address = all_gather_in_step(
      group_of_step(facts, at, *where, "address", token), own ? *own : kNone, timeout,
      [](Values values) { return Result<Values>(Values{std::move(values.front())}); });
  if (!own) return own.error();
  if (!address) return address.error();
  if (address->front() == kNone) return Error::elsewhere();
  if (!is_numeric(address->front()))
    return Error{.message = formatted("rank 0 sent '{}', which is no numeric address",
                                      printable(address->front())),
                 .only_here = true};
  return address->front();
}

}  // namespace

Status check_exported_host(const std::string& host, const LaunchFacts& facts) {
  if (!names_loopback(host) || !facts.has_several_nodes()) return Ok{};
  const std::size_t nodes = std::max(facts.nodes.size(), facts.tasks_per_node.size());
  return Error{
      formatted("MASTER_ADDR='{}' is exported, which is each node's own address, but the ranks are "
                "on {} nodes: unset it, or give override=yes",
                printable(host), nodes > 1 ? std::to_string(nodes) : "several")};
}

Status check_is_not_own(const StepOptions& step, const LaunchFacts& facts, const HostNames& names) {
  const std::string& host = step.options.addr.text;
  if (!step.exported.host || !facts.has_several_nodes() || names_loopback(host)) return Ok{};
  const auto map = task_map_of(facts);
  const auto master_node = map ? master_node_of(facts, *map, step.options.ranks) : map.error();
  if (!master_node || *master_node == facts.node_rank) return Ok{};  // plan_step() has the error
  const auto address = numeric_address(host, names);
  if (!address || !is_own_address(*address)) return Ok{};
  return Error{.message = formatted("MASTER_ADDR='{}' is exported, which is an address of {}, but "
                                    "rank 0 runs on another node: unset it, or give override=yes",
                                    printable(host), host_name()),
               .only_here = true};
}

std::optional<Endpoint> StepOptions::exported_endpoint() const {
  if (!exported.host || !exported.port) return std::nullopt;
  return Endpoint{options.addr.text, options.port.low};
}

Result<StepOptions> step_options(const EnvMap& user, const LaunchOptions& options) {
  const EnvMap environment = without_empty(user).environment;
  const std::string_view exported = environment.get(kTokenVariable).value_or("");
  const auto token = exported.empty() ? Result<std::string>(std::string())
                                      : checked_token(kTokenVariable, exported);
  if (!token) return token.error();
  StepOptions step{.options = options, .exported = {}, .token = *token};
  if (options.override_user) return step;
  const auto port = environment.integer("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  const auto host = environment.get("MASTER_ADDR");
  if (host && !is_host_text(*host))
    return Error{
        formatted("MASTER_ADDR='{}': expected a host name or an address, without a port: unset it",
                  printable(*host))};
  if (host) step.options.addr = {AddressRule::Kind::kHost, std::string(*host)};
  if (*port) step.options.port = {static_cast<int>(**port), static_cast<int>(**port)};
  step.exported = {.host = host.has_value(), .port = port->has_value()};
  return step;
}

Result<StepPlan> plan_step(LaunchFacts facts, const StepOptions& step,
                           std::optional<Endpoint> store, std::chrono::milliseconds timeout,
                           HostNames names) {
  const LaunchOptions& options = step.options;
  auto map = task_map_of(facts);
  if (!map) return map.error();
  if (step.exported.host) {
    if (const auto checked = check_exported_host(options.addr.text, facts); !checked)
      return checked.error();
  }
  const auto master_node = master_node_of(facts, *map, options.ranks);
  if (!master_node) return master_node.error();
  auto named =
      store ? Result<Endpoint>(*std::move(store)) : store_endpoint_of(facts, *map, options, names);
  if (!named) return named.error();
  auto env = torch_env_of(facts, *map, options, std::move(*named));
  if (!store) {
    auto address =
        agree_on_address(facts, *map, env.layout, env.master, options, timeout, names, step.token);
    if (!address) return address.error();
    env.master.host = std::move(*address);
  }
  return StepPlan{std::move(facts), std::move(*map), options,          step.exported,
                  std::move(env),   *master_node,    std::move(names), step.token};
}

std::vector<std::string> names_of_step(const LaunchFacts& facts, const StepOptions& step,
                                       const std::string& own_node) {
  const AddressRule& rule = step.options.addr;
  // All distributions begin on the first node; the nodes of ranks that were placed one by one are
  // listed.
  const bool is_listed = step.options.ranks != RankRule::kBlock && !facts.node_of_rank.empty();
  const auto index = is_listed ? static_cast<std::size_t>(facts.node_of_rank.front()) : 0;
  const std::string node = index < facts.nodes.size() ? facts.nodes[index] : "";
  std::vector<std::string> names;
  if (own_node.empty() || own_node == node) names.push_back(host_name());
  if (!facts.first_address.empty()) names.push_back(facts.first_address);
  if (rule.kind == AddressRule::Kind::kHost) {
    names.push_back(rule.text);
  } else if (!node.empty()) {
    names.push_back(node + (rule.kind == AddressRule::Kind::kSuffix ? rule.text : ""));
  }
  return names;
}

HostNames look_up_names_of_step(
    const LaunchFacts& facts, const StepOptions& step, const std::string& own_node,
    const std::function<std::string(const std::string& node)>& node_address) {
  const auto names = names_of_step(facts, step, own_node);
  HostNames found = HostNames::look_up(names);
  if (names.empty() || !step.options.addr.is_by_node_name() || !facts.first_address.empty())
    return found;
  const std::string& master = names.back();
  if (address_of_node(master, own_node == master, found) || facts.node_addresses.contains(master))
    return found;
  if (const std::string address = node_address(master); !address.empty())
    found.add_alias(master, address);
  return found;
}

Result<Socket> reserve_store_socket(StepPlan& plan, const EnvMap& environment) {
  const bool agent_serves =
      environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" && !plan.options.override_user;
  if (plan.env.layout.rank != 0 || agent_serves) return Socket();
  const bool is_only_rank = plan.map.world_size() == 1;
  // Of an only rank the user's endpoint may be that of other steps.
  if (is_only_rank && (plan.exported.host || plan.exported.port)) return Socket();
  Endpoint store = plan.env.master;
  if (plan.exported.host) store.host = plan.options.addr.text;  // for messages, what the user gave
  auto socket = reserve_store_port(store, plan.env.run_id, plan.names);
  const PortRule& rule = plan.options.port;  // 0: any
  for (int port = rule.low; is_only_rank && !socket && port <= rule.high; ++port)
    socket = reserve_store_port({store.host, port}, plan.env.run_id, plan.names);
  if (!socket) return Error{.message = socket.error().message, .only_here = true};
  if (const auto port = bound_port(*socket)) plan.env.master.port = *port;
  return socket;
}

}  // namespace torchbridge
