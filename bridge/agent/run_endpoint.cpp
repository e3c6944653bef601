#include "bridge/agent/run_endpoint.h"

#include <algorithm>

#include "bridge/coordination/rendezvous_token.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/launcher.h"
#include "bridge/core/launchers/mpirun_daemons.h"
#include "bridge/launch/launch.h"
#include "bridge/net/address.h"

namespace torchbridge {
namespace {

constexpr int kStaticPort = 29500;  // torchrun's default

bool names_endpoint(const RunOptions& options) {
  return !options.rdzv_endpoint.empty() || options.master_addr != RunOptions().master_addr || options.master_port;
}

RunShape shape_of(const RunOptions& options, int tasks) {
  RunShape shape;
  shape.min_nodes = options.min_nodes > 0 ? options.min_nodes : tasks;
  shape.max_nodes = options.max_nodes > 0 ? options.max_nodes : tasks;
  shape.active_nodes = options.active_nodes > 0 ? options.active_nodes : shape.max_nodes;
  shape.max_restarts = options.max_restarts;
  return shape;
}

Status check_shape(const RunShape& shape) {
  if (shape.active_nodes < shape.min_nodes || shape.active_nodes > shape.max_nodes) {
    return Error{"--active " + std::to_string(shape.active_nodes) + ": expected a number from " +
                 std::to_string(shape.min_nodes) + " to " + std::to_string(shape.max_nodes) + " (--nnodes)"};
  }
  return Ok{};
}

bool is_yes(std::string text) {
  for (char& letter : text) letter = static_cast<char>(tolower(static_cast<unsigned char>(letter)));
  return text == "1" || text == "true" || text == "t" || text == "yes" || text == "y";
}

// Whoever can listen there coordinates; the others of this host find the port taken, and connect.
Result<Socket> listen_where_own(const Endpoint& endpoint, bool must) {
  const auto address = numeric_address(endpoint.host);
  if (!address) return must ? Result<Socket>(address.error()) : Socket();  // connecting tries the name again
  if (!is_own_address(*address)) {
    if (!must) return Socket();
    return Error{printable(endpoint.host) + " is not an address of " + host_name() + ", which is node 0"};
  }
  const bool is_exact = is_numeric(endpoint.host) || names_loopback(endpoint.host);
  auto socket = listen_on({is_exact ? *address : address_to_listen_on(*address), endpoint.port});
  return socket || must ? std::move(socket) : Result<Socket>(Socket());
}

Result<RunEndpoint> from_static(const RunOptions& options) {
  RunEndpoint run;
  if (options.min_nodes != options.max_nodes) {
    return Error{"--nnodes MIN:MAX needs --rdzv-backend c10d: with static the number of nodes is fixed"};
  }
  if (options.node_rank >= options.max_nodes) {
    return Error{"--node-rank " + std::to_string(options.node_rank) + ": expected a number below " +
                 std::to_string(options.max_nodes) + " (--nnodes)"};
  }
  run.coordinator = {without_brackets(options.master_addr), options.master_port.value_or(0)};
  if (!options.rdzv_endpoint.empty()) {
    const auto endpoint = parse_endpoint(options.rdzv_endpoint);
    if (!endpoint) return endpoint.error();
    run.coordinator = *endpoint;
  }
  if (run.coordinator.port == 0) run.coordinator.port = kStaticPort;
  run.order = options.node_rank;
  if (options.node_rank != 0) return run;
  auto listener = listen_where_own(run.coordinator, true);
  if (!listener) return listener.error();
  run.listener = std::move(*listener);
  return run;
}

Result<RunEndpoint> from_c10d(const RunOptions& options, const LaunchedTask& task) {
  RunEndpoint run;
  const auto endpoint = parse_endpoint(options.rdzv_endpoint.empty() ? "localhost" : options.rdzv_endpoint);
  if (!endpoint) return endpoint.error();
  run.coordinator = *endpoint;
  if (run.coordinator.port == 0) run.coordinator.port = kRendezvousPort;
  if (task.count > 1) run.order = task.rank;
  const auto is_host = options.rdzv_conf.find("is_host");
  const bool is_given = is_host != options.rdzv_conf.end();
  if (is_given && !is_yes(is_host->second)) return run;
  auto listener = listen_where_own(run.coordinator, is_given);
  if (!listener) return listener.error();
  run.listener = std::move(*listener);
  return run;
}

std::string conf(const RunOptions& options, const std::string& key, const std::string& default_value = "") {
  const auto given = options.rdzv_conf.find(key);
  return given == options.rdzv_conf.end() ? default_value : given->second;
}

Result<RunEndpoint> from_etcd(const RunOptions& options) {
  const auto endpoint = parse_endpoint(options.rdzv_endpoint.empty() ? "localhost" : options.rdzv_endpoint);
  if (!endpoint) return endpoint.error();
  const bool is_v6 = endpoint->host.find(':') != endpoint->host.npos;
  const std::string host = is_v6 ? "[" + endpoint->host + "]" : endpoint->host;
  const RendezvousTimes times = rendezvous_times(options);
  EtcdSettings settings;
  settings.url = conf(options, "protocol", "http") + "://" + host + ":" +
                 std::to_string(endpoint->port == 0 ? kEtcdPort : endpoint->port);
  settings.prefix = conf(options, "etcd_prefix", "/torchelastic/p2p") + "/run_" + options.rdzv_id + "/torchbridge/";
  settings.ca_cert = conf(options, "ca_cert", conf(options, "cacert"));
  settings.cert = conf(options, "ssl_cert", conf(options, "cert"));
  settings.key = conf(options, "ssl_cert_key", conf(options, "key"));
  settings.user = conf(options, "user");
  settings.password = conf(options, "password");
  settings.timeout = times.read_timeout;
  settings.lease = times.keep_alive_interval * times.keep_alive_max_attempt;
  auto record = etcd_coordinator_record(settings);
  if (!record) return record.error();
  RunEndpoint run;
  run.record = std::move(*record);
  return run;
}

Result<RunEndpoint> from_file(const RunOptions& options) {
  if (options.rdzv_endpoint.empty()) return Error{"store_type=file needs --rdzv-endpoint with the path of a file"};
  RunEndpoint run;
  run.record = file_coordinator_record(options.rdzv_endpoint);
  return run;
}

Result<RunEndpoint> from_launcher(const EnvMap& environment, const LaunchedTask& task) {
  LaunchSettings settings;
  const auto given = parse_options(environment.get(kOptionsVariable).value_or(""));
  if (!given) return Error{std::string(kOptionsVariable) + ": " + given.error().message};
  settings.options = *given;
  auto launch = resolve_launch(environment, settings);
  if (!launch) return launch.error();
  const Layout& layout = launch->env.layout;
  RunEndpoint run;
  run.coordinator = launch->env.master;
  run.run_id = launch->env.run_id;
  run.order = layout.rank;
  run.is_whole_node = layout.world_size == layout.node_count;
  if (!run.is_whole_node) run.node = "node " + std::to_string(layout.node_rank);
  run.listener = std::move(launch->store_socket);
  if (layout.rank == 0 && !run.listener.open()) {
    auto listener = listen_where_own(run.coordinator, true);
    if (!listener) return Error{.message = listener.error().message, .only_here = true};
    run.listener = std::move(*listener);
  }
  const auto launcher = find_launcher(environment);
  const std::string token =
      launcher && *launcher && (*launcher)->name == std::string_view("openmpi") ? token_of_mpirun(environment) : "";
  if (!token.empty()) run.key = RunKey::of_token(token);
  if (layout.world_size != task.count) {
    return Error{"WORLD_SIZE=" + std::to_string(layout.world_size) + ", but the launcher started " +
                 std::to_string(task.count) + " tasks: unset it"};
  }
  return run;
}

}  // namespace

bool names_loopback(const std::string& host) { return host == "localhost" || (is_numeric(host) && is_loopback(host)); }

Result<LaunchedTask> launched_task(const EnvMap& environment) {
  const auto launcher = find_launcher(environment);
  if (!launcher) return launcher.error();
  if (*launcher == nullptr) return LaunchedTask{};
  const auto facts = (*launcher)->read(environment);
  if (!facts) return facts.error();
  return LaunchedTask{facts->rank, facts->world_size};
}

Result<bool> has_several_agents(const RunOptions& options, const LaunchedTask& task) {
  if (options.is_standalone) return false;
  const bool is_one_node = options.max_nodes == 1;
  if (is_one_node && task.count > 1) {
    return Error{.message = "this is one of " + std::to_string(task.count) +
                            " tasks, and with --nnodes 1 each would run a job of its own: leave --nnodes out; for "
                            "separate jobs give --standalone",
                 .reported_elsewhere = task.rank != 0};
  }
  return options.max_nodes > 1 || (options.max_nodes == 0 && task.count > 1);
}

Result<RunEndpoint> find_run_endpoint(const RunOptions& options, const EnvMap& environment, const LaunchedTask& task) {
  const RunShape shape = shape_of(options, std::max(task.count, 1));
  if (const auto checked = check_shape(shape); !checked) return checked.error();
  const bool has_etcd = options.rdzv_backend.starts_with("etcd");
  auto run = task.count > 1 && !names_endpoint(options) && !has_etcd ? from_launcher(environment, task)
             : has_etcd                                              ? from_etcd(options)
             : conf(options, "store_type") == "file"                 ? from_file(options)
             : options.rdzv_backend == "static"                      ? from_static(options)
                                                                     : from_c10d(options, task);
  if (!run) return run.error();
  run->shape = shape;
  run->is_output_shared = task.count > 1;
  if (options.rdzv_id != RunOptions().rdzv_id || run->run_id.empty()) run->run_id = options.rdzv_id;
  if (run->run_id.size() > kLongestRunId) {
    return Error{"--rdzv-id has " + std::to_string(run->run_id.size()) + " bytes: expected at most " +
                 std::to_string(kLongestRunId)};
  }
  const auto token = rendezvous_token(options.rdzv_token_file, environment);
  if (!token) return token.error();
  if (!token->empty()) {
    run->key = RunKey::of_token(*token);
  } else if (!run->key.has_token()) {
    run->key = RunKey::of_run_id(run->run_id);
  }
  return run;
}

}  // namespace torchbridge
