#include <torchbridge/core/host_text.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/master_address.h>
#include <torchbridge/task/step_plan.h>
#include <torchbridge/task/store_port.h>

namespace torchbridge {
namespace {

// `options` as take_exported_master made them.
Status check_exported_host(ExportedMaster exported, const Options& options, int nodes) {
  const std::string& host = options.addr.text;
  const bool is_each_nodes_own = is_loopback(host) || host.starts_with("localhost");
  if (!exported.host || nodes == 1 || !is_each_nodes_own) return Ok{};
  return Error{"MASTER_ADDR='" + printable(host) +
               "' is exported, which means every node's own self, but the ranks are on " +
               std::to_string(nodes) + " nodes: unset it, or give override=yes"};
}

Result<StepPlan> plan_at(Endpoint store, LaunchFacts facts, TaskMap map, const Options& options,
                         ExportedMaster exported) {
  const auto master_node = master_node_of(facts, map, options.ranks);
  if (!master_node) return master_node.error();
  auto env = torch_env_of(facts, map, options, std::move(store));
  return StepPlan{std::move(facts), std::move(map), options,
                  exported,         std::move(env), *master_node};
}

}  // namespace

Result<ExportedMaster> take_exported_master(const EnvMap& environment, Options& options) {
  ExportedMaster exported;
  if (options.override_user) return exported;
  const auto port = environment.integer("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  const auto host = environment.get("MASTER_ADDR");
  if (host && !is_host_text(*host))
    return Error{"MASTER_ADDR='" + printable(*host) +
                 "': expected a host name or an address: unset it"};
  if (host) options.addr = {AddressRule::Kind::kHost, std::string(*host)};
  if (*port) options.port = {static_cast<int>(**port), static_cast<int>(**port)};
  return ExportedMaster{.host = host.has_value(), .port = port->has_value()};
}

Result<StepPlan> plan_step(LaunchFacts facts, const EnvMap& environment, const Options& options,
                           std::chrono::milliseconds timeout) {
  Options rules = options;
  const auto exported = take_exported_master(environment, rules);
  if (!exported) return exported.error();
  auto map = task_map_of(facts);
  if (!map) return map.error();
  if (const auto checked = check_exported_host(*exported, rules, map->node_count()); !checked)
    return checked.error();
  auto store = store_endpoint_of(facts, *map, rules);
  if (!store) return store.error();
  auto plan = plan_at(std::move(*store), std::move(facts), std::move(*map), rules, *exported);
  if (!plan) return plan;
  TorchEnv& env = plan->env;
  auto address = agree_on_address(plan->facts, plan->map, env.layout, env.master, rules, timeout);
  if (!address) return address.error();
  env.master.host = std::move(*address);
  return plan;
}

Result<StepPlan> plan_step_at(Endpoint store, LaunchFacts facts, const EnvMap& environment,
                              const Options& options) {
  Options rules = options;
  const auto exported = take_exported_master(environment, rules);
  if (!exported) return exported.error();
  auto map = task_map_of(facts);
  if (!map) return map.error();
  if (const auto checked = check_exported_host(*exported, rules, map->node_count()); !checked)
    return checked.error();
  return plan_at(std::move(store), std::move(facts), std::move(*map), rules, *exported);
}

Result<Socket> reserve_store_socket(const StepPlan& plan, const EnvMap& environment) {
  const bool agent_serves =
      environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" && !plan.options.override_user;
  if (plan.env.layout.rank != 0 || agent_serves) return Socket();
  auto socket = reserve_store_port(plan.env.master);
  if (!socket) return Error{.message = socket.error().message, .only_here = true};
  return socket;
}

}  // namespace torchbridge
