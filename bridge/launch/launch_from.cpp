#include "bridge/launch/launch_from.h"

#include <cstdlib>

#include "bridge/base/message_text.h"
#include "bridge/base/random_number.h"
#include "bridge/core/launchers/mpirun_daemons.h"
#include "bridge/core/other_ranks.h"
#include "bridge/host/scontrol.h"
#include "bridge/launch/launcher_exchange.h"
#include "bridge/launch/rank_nodes.h"
#include "bridge/net/address.h"

namespace torchbridge {
namespace {

std::vector<Variable> variables_for_mpi() {
  const char* value = std::getenv(kPmixVariable);
  if (value == nullptr) return {};
  return {{kPmixVariable, value}};
}

// `bound` is the store's socket where this rank has it already. An endpoint that the user exported
// is not reserved where this process itself will listen. For a program that follows by exec it is,
// or that program would find too late that another one has the port.
Result<Launch> launch_of(Result<StepPlan> plan, Socket bound, const EnvMap& environment,
                         const LaunchSettings& settings) {
  if (!plan) return plan.error();
  const bool will_listen = settings.store_socket == StoreSocket::kListening;
  if (!bound.open() && !(will_listen && plan->exported.host && plan->exported.port)) {
    auto reserved = reserve_store_socket(*plan, environment);
    if (!reserved) return reserved.error();
    bound = std::move(*reserved);
    const int port = plan->env.master.port;
    if (will_listen && bound.open()) {
      auto listening = inherit(bound.release(), port);
      if (!listening)
        return Error{formatted(
            "port {} was taken by another program after it was reserved: start the job again",
            port)};
      bound = std::move(*listening);
    }
  }
  Launch launch;
  launch.env = plan->env;
  launch.launcher = plan->facts.launcher;
  launch.plan = std::move(*plan);
  launch.store_socket = std::move(bound);
  return launch;
}

// The ranks exchange what the launcher does not give, where they need it.
Result<Launch> launch_by_exchange(LaunchFacts facts, const StepOptions& step,
                                  const EnvMap& environment, const LaunchSettings& settings) {
  auto given = step.exported_endpoint();
  if (facts.world_size > 1 && !(given && !facts.needs_node_exchange())) {
    LaunchSettings own = settings;
    own.shares_token = settings.shares_token && can_share_token(facts, environment);
    auto exchange = connect(facts, environment, step, own.shares_token);
    if (!exchange) return exchange.error();
    auto launch = launch_through_exchange(**exchange, std::move(facts), step, environment, own);
    exchange->reset();
    if (launch) launch->mpi_variables = variables_for_mpi();
    return launch;
  }
  auto store = given ? Result<StoreAddress>(StoreAddress{*given, {}})
                     : bind_store(true, step.options, settings.store_socket);
  if (!store) return store.error();
  auto plan = plan_step(std::move(facts), step, std::move(store->endpoint), settings.timeout);
  return launch_of(std::move(plan), std::move(store->socket), environment, settings);
}

// As the plugin does. A large step's nodes do not all ask at the same moment.
std::string ask_controller(const LaunchFacts& facts, const std::string& node) {
  if (facts.launcher != "slurm") return "";
  wait_random_delay(request_spread(facts.nodes.size()));
  return node_addr_by_scontrol(node);
}

// A launcher that names the nodes, as Slurm, gives all facts, except for ranks that it placed one
// by one.
Result<Launch> launch_by_facts(LaunchFacts facts, const StepOptions& step,
                               const EnvMap& environment, const LaunchSettings& settings) {
  if (step.options.ranks != RankRule::kBlock && can_exchange_placement(facts)) {
    if (const auto asked = exchange_placement(facts, step.token, settings.timeout); !asked)
      return asked.error();
  }
  const auto own = static_cast<std::size_t>(facts.node_rank);
  const std::string own_node = own < facts.nodes.size() ? facts.nodes[own] : "";
  const auto ask = [&](const std::string& node) { return ask_controller(facts, node); };
  HostNames names = look_up_names_of_step(facts, step, own_node, ask);
  if (const auto checked = check_is_not_own(step, facts, names); !checked) return checked.error();
  auto plan = plan_step(std::move(facts), step, std::nullopt, settings.timeout, std::move(names));
  return launch_of(std::move(plan), {}, environment, settings);
}

// The socket that the plugin reserved for rank 0. A descendant may have the variable without the
// descriptor.
Socket inherited_socket(const TorchEnv& env, const EnvMap& environment) {
  if (env.layout.rank != 0) return {};
  const auto descriptor = environment.integer("TORCHBRIDGE_LISTEN_FD", 3, INT32_MAX);
  if (!descriptor || !*descriptor) return {};
  auto socket = inherit(static_cast<int>(**descriptor), env.master.port);
  return socket ? std::move(*socket) : Socket();
}

}  // namespace

void set_by_hand(Launch& launch, const LaunchOrigin& origin) {
  launch.is_by_hand =
      origin.launcher == nullptr || origin.is_set_inside ||
      (origin.facts && !has_placed_ranks(origin.facts->world_size, origin.environment));
  const Layout& at = launch.env.layout;
  launch.is_local_size_known = at.world_size == 1 || origin.environment.has("LOCAL_WORLD_SIZE");
  // At 0.0.0.0 rank 0 is to listen for all, and the others may have its address.
  const bool is_any = is_any_address(address_in_digits(launch.env.master.host));
  const bool may_have_others = is_any || origin.environment.has("KUBERNETES_SERVICE_HOST");
  const bool has_others =
      at.local_world_size < at.world_size || (!launch.is_local_size_known && may_have_others);
  launch.may_have_other_nodes = launch.is_by_hand && at.world_size > 1 && has_others &&
                                (is_any || !is_numeric(launch.env.master.host));
}

Result<Launch> launch_from_given(const Result<TorchEnv>& given, const LaunchOrigin& origin) {
  if (!given) return given.error();
  Launch launch;
  launch.env = *given;
  launch.launcher = "environment";
  set_by_hand(launch, origin);
  if (origin.is_launchers(launch.env.layout)) {
    launch.matching_facts = origin.facts;
    const auto checked = check_exported_host(launch.env.master.host, *launch.matching_facts);
    if (!checked) return Error{checked.error().message + kForRanksInside};
  }
  launch.store_socket = inherited_socket(launch.env, origin.environment);
  return launch;
}

Result<Launch> launch_from_launcher(LaunchFacts facts, const EnvMap& environment,
                                    const LaunchSettings& settings) {
  auto step = step_options(environment, settings.options);
  if (!step) return step.error();
  if (auto token = token_of_launcher(facts, environment); !token.empty())
    step->token = std::move(token);
  if (facts.nodes.empty())
    return launch_by_exchange(std::move(facts), *step, environment, settings);
  return launch_by_facts(std::move(facts), *step, environment, settings);
}

Result<Launch> launch_through_exchange(Exchange& exchange, LaunchFacts facts,
                                       const StepOptions& step, const EnvMap& environment,
                                       const LaunchSettings& settings) {
  auto store = publish_store(facts, exchange, step.exported_endpoint(), step.options,
                             settings.store_socket, settings.timeout, settings.shares_token);
  if (!store) return store.error();
  StepOptions own = step;
  if (settings.shares_token) own.token = std::move(store->token);
  auto plan = plan_step(std::move(facts), own, std::move(store->endpoint), settings.timeout);
  return launch_of(std::move(plan), std::move(store->socket), environment, settings);
}

Result<Launch> launch_single_process(const LaunchOrigin& origin, const LaunchSettings& settings) {
  auto sign =
      sign_of_other_ranks(origin.environment, names_of_ancestors(origin.processes), Alone::kRank);
  if (!sign) return sign.error();
  LaunchFacts facts;
  facts.launcher = "none";
  facts.nodes = {host_name()};
  facts.tasks_per_node = {1};
  auto launch = launch_by_exchange(std::move(facts), {settings.options, {}, {}}, {}, settings);
  if (launch) launch->note = std::move(*sign);
  return launch;
}

}  // namespace torchbridge
