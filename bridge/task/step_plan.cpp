#include <torchbridge/task/step_plan.h>

#include <torchbridge/core/exported_values.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/master_address.h>
#include <torchbridge/task/store_port.h>

namespace torchbridge {
namespace {

// Where rank 0 will really listen: what the user exported is kept, unless it is to be replaced.
Result<Endpoint> effective_master(const Endpoint& computed, int nodes, const EnvMap& environment, const Options& options) {
  Endpoint master = computed;
  if (options.override_user) return master;
  const auto port = environment.integer("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  if (*port) master.port = static_cast<int>(**port);
  const auto host = environment.get("MASTER_ADDR");
  if (!host) return master;
  if (nodes > 1 && (is_loopback(std::string(*host)) || host->starts_with("localhost"))) {
    return Error{"MASTER_ADDR='" + printable(*host) + "' is exported, which means every node's own self, but the ranks are on " + std::to_string(nodes) +
                 " nodes: unset it, or give override=yes"};
  }
  master.host = *host;
  return master;
}

}  // namespace

Result<StepPlan> plan_step(LaunchFacts facts, const EnvMap& environment, const Options& options) {
  const auto map = task_map_of(facts);
  if (!map) return map.error();
  auto endpoint = store_endpoint_of(facts, *map, options);
  if (!endpoint) return endpoint.error();
  return plan_step_at(std::move(*endpoint), std::move(facts), environment, options);
}

Status settle_address(StepPlan& plan, const Options& options) {
  constexpr std::chrono::seconds kTimeout{60};  // nodes of a large step start one after the other
  if (plan.master.host != plan.env.master.host) return Ok{};  // the user's
  auto address = agree_on_address(plan.facts, plan.map, plan.env, options, kTimeout);
  if (!address) return address.error();
  plan.env.master.host = plan.master.host = std::move(*address);
  return Ok{};
}

Result<StepPlan> plan_step_at(Endpoint computed, LaunchFacts facts, const EnvMap& environment, const Options& options) {
  if (const auto checked = check_exported(environment, options.override_user); !checked) return checked.error();
  auto map = task_map_of(facts);
  if (!map) return map.error();
  const auto master_node = master_node_of(facts, *map, options.ranks);
  if (!master_node) return master_node.error();
  auto env = torch_env_of(facts, *map, options, std::move(computed));
  auto master = effective_master(env.master, map->node_count(), environment, options);
  if (!master) return master.error();
  return StepPlan{std::move(facts), std::move(*map), std::move(env), std::move(*master), *master_node};
}

}  // namespace torchbridge
