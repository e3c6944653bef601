#include <torchbridge/exchange/launch.h>

#include <map>
#include <optional>

#include <torchbridge/core/launcher.h>
#include <torchbridge/core/options.h>
#include <torchbridge/exchange/exchange.h>
#include <torchbridge/net/address.h>

namespace torchbridge {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

// What one rank tells the others: "NODE ADDRESS PORT", the last two "-" but for rank 0 where it serves the store.
struct Announcement {
  std::string node;
  Endpoint store;

  std::string text() const {
    return node + " " + (store.host.empty() ? "-" : store.host) + " " + std::to_string(store.port);
  }

  static Result<Announcement> parse(const std::string& text) {
    const auto first = text.find(' ');
    const auto second = text.find(' ', first + 1);
    const auto port = second == std::string::npos ? std::nullopt : parse_integer(text.substr(second + 1), 0, 65535);
    if (!port) return Error{"a rank published '" + printable(text) + "': do all ranks run the same version?"};
    const auto host = text.substr(first + 1, second - first - 1);
    return Announcement{text.substr(0, first), {host == "-" ? "" : host, static_cast<int>(*port)}};
  }
};

struct Address {
  Endpoint endpoint;
  Socket socket;  // open where the endpoint was bound here
};

// MASTER_ADDR and MASTER_PORT as the user gave them: both, or neither.
Result<std::optional<Endpoint>> endpoint_given(const EnvMap& environment) {
  const auto port = environment.integer("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  const auto host = environment.get("MASTER_ADDR");
  if (!host && !*port) return std::optional<Endpoint>();
  if (!host || host->empty()) return Error{"MASTER_PORT is set, but MASTER_ADDR is not: set both or neither"};
  if (!*port) return Error{"MASTER_ADDR is set, but MASTER_PORT is not: set both or neither"};
  return std::optional<Endpoint>({std::string(*host), static_cast<int>(**port)});
}

// On rank 0: a port that the kernel chose, bound on the one interface that the job needs.
Result<Address> bind_store(const LaunchFacts& facts) {
  Address address{{kLoopback, 0}, {}};
  if (facts.local_size != facts.world_size) {
    auto reachable = reachable_address();
    if (!reachable) return reachable.error();
    address.endpoint.host = *reachable;
  }
  auto socket = listen_on(address.endpoint);
  if (!socket) return socket.error();
  const auto port = bound_port(*socket);
  if (!port) return port.error();
  address.endpoint.port = *port;
  address.socket = std::move(*socket);
  return address;
}

// Numbers the nodes in the order of their lowest rank.
std::vector<int> number_nodes(const std::vector<Announcement>& announcements) {
  std::map<std::string, int> numbers;
  std::vector<int> node_of_rank;
  for (const auto& announcement : announcements) {
    const auto [entry, is_new] = numbers.emplace(announcement.node, static_cast<int>(numbers.size()));
    node_of_rank.push_back(entry->second);
  }
  return node_of_rank;
}

Result<Address> exchange_addresses(LaunchFacts& facts, std::chrono::milliseconds timeout) {
  Address own;
  if (facts.rank == 0) {
    auto bound = bind_store(facts);
    if (!bound) return bound.error();
    own = std::move(*bound);
  }
  auto exchange = connect_pmix(facts.world_size);
  if (!exchange) return exchange.error();
  const auto texts = (*exchange)->all_gather(Announcement{host_name(), own.endpoint}.text(), timeout);
  if (!texts) return texts.error();
  std::vector<Announcement> announcements;
  for (const auto& text : *texts) {
    auto announcement = Announcement::parse(text);
    if (!announcement) return announcement.error();
    announcements.push_back(std::move(*announcement));
  }
  facts.node_of_rank = number_nodes(announcements);
  own.endpoint = announcements.front().store;
  return own;
}

Result<Launch> launch_of(LaunchFacts facts, Address address) {
  const auto map = task_map_of(facts);
  if (!map) return map.error();
  Launch launch;
  launch.env = torch_env_of(facts, *map, Options{}, std::move(address.endpoint));
  launch.store_socket = std::move(address.socket);
  launch.launcher = facts.launcher;
  return launch;
}

// A launcher that names no nodes, as OpenMPI, tells no place to meet either.
Result<Launch> launch_by_exchange(LaunchFacts facts, const std::optional<Endpoint>& given, std::chrono::milliseconds timeout) {
  if (given && !facts.needs_node_exchange()) return launch_of(std::move(facts), {*given, {}});
  auto address = exchange_addresses(facts, timeout);
  if (!address) return address.error();
  if (given) address = Address{*given, {}};
  return launch_of(std::move(facts), std::move(*address));
}

// A launcher that names them, as Slurm, has told all there is to know.
Result<Launch> launch_by_facts(LaunchFacts facts, const std::optional<Endpoint>& given) {
  if (given) return launch_of(std::move(facts), {*given, {}});
  const auto map = task_map_of(facts);
  if (!map) return map.error();
  auto endpoint = endpoint_of(facts, *map, Options{}, ephemeral_ports());
  if (!endpoint) return endpoint.error();
  if (auto numeric = numeric_address(endpoint->host)) endpoint->host = *numeric;
  return launch_of(std::move(facts), {*endpoint, {}});
}

// A world of one: any free port will do, and nobody has to be told.
Result<Launch> launch_alone() {
  LaunchFacts facts;
  facts.launcher = "none";
  facts.tasks_per_node = {1};
  auto address = bind_store(facts);
  if (!address) return address.error();
  return launch_of(std::move(facts), std::move(*address));
}

// OpenMPI's own word, and nothing under other launchers.
std::optional<LaunchFacts> mpirun_facts(const EnvMap& environment) {
  const Launcher* launcher = innermost_launcher(environment);
  if (launcher == nullptr || launcher->name != std::string("openmpi")) return std::nullopt;
  auto facts = launcher->read(environment);
  return facts ? std::optional(std::move(*facts)) : std::nullopt;
}

// RANK and WORLD_SIZE that were exported around an mpirun hold for none of its ranks. Right are: the same position, or a
// torchrun agent on each rank of the MPI job, whose workers count the agents as groups.
Status check_against_launcher(const TorchEnv& env, const EnvMap& environment) {
  const auto facts = mpirun_facts(environment);
  if (!facts) return Ok{};
  const Layout& at = env.layout;
  const bool same = at.rank == facts->rank && at.world_size == facts->world_size;
  const bool agents = at.node_rank == facts->rank && at.node_count == facts->world_size;
  if (same || agents) return Ok{};
  return Error{"RANK='" + std::to_string(at.rank) + "' and WORLD_SIZE='" + std::to_string(at.world_size) +
               "' are exported, but mpirun says rank " + std::to_string(facts->rank) + " of " +
               std::to_string(facts->world_size) + ": unset the one that is not meant"};
}

}  // namespace

int presumed_rank(const EnvMap& environment) {
  const auto mpirun = mpirun_facts(environment);
  const auto env = torch_env_from(environment);
  const bool mpirun_knows_better = mpirun && (!env || !check_against_launcher(*env, environment));
  if (mpirun_knows_better) return mpirun->rank;
  if (const auto rank = environment.integer("RANK", 0, INT32_MAX); rank && *rank) return static_cast<int>(**rank);
  const Launcher* launcher = innermost_launcher(environment);
  if (launcher == nullptr) return 0;
  const auto facts = launcher->read(environment);
  return facts ? facts->rank : 0;
}

Result<Launch> resolve_launch(const EnvMap& environment, std::chrono::milliseconds timeout) {
  const Launcher* launcher = innermost_launcher(environment);
  if (environment.has("RANK") || (launcher == nullptr && environment.has("WORLD_SIZE"))) {
    auto env = torch_env_from(environment);
    if (!env) return env.error();
    if (const auto fits = check_against_launcher(*env, environment); !fits) return fits.error();
    Launch launch;
    launch.env = std::move(*env);
    launch.launcher = "environment";
    return launch;
  }
  if (launcher == nullptr) return launch_alone();

  auto facts = launcher->read(environment);
  if (!facts) return facts.error();
  const auto given = endpoint_given(environment);
  if (!given) return given.error();
  if (facts->nodes.empty()) {
    return launch_by_exchange(std::move(*facts), *given, timeout);
  }
  return launch_by_facts(std::move(*facts), *given);
}

}  // namespace torchbridge
