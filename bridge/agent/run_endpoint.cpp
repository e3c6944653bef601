#include "bridge/agent/run_endpoint.h"

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/coordination/rendezvous_token.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/launchers/mpirun_daemons.h"
#include "bridge/core/other_ranks.h"
#include "bridge/launch/launch.h"
#include "bridge/net/address.h"

namespace torchbridge {
namespace {

constexpr int kStaticPort = 29500;  // torchrun's default

bool names_endpoint(const RunOptions& options) {
  return !options.rdzv_endpoint.empty() || options.master_addr != RunOptions().master_addr ||
         options.master_port;
}

bool is_etcd(const RunOptions& options) { return options.rdzv_backend >= RdzvBackend::kEtcd; }

// Whether agents that the launcher has not started can find this one.
bool is_open_to_others(const RunOptions& options) {
  return names_endpoint(options) || is_etcd(options);
}

// A launcher starts all agents of a run, or a single one where each is a step of its own.
Status check_task_count(const RunOptions& options, int tasks) {
  const bool is_too_many = options.max_nodes > 0 && tasks > options.max_nodes;
  const bool is_too_few =
      tasks > 0 && tasks < options.min_nodes && (tasks > 1 || !is_open_to_others(options));
  if (!is_too_many && !is_too_few) return Ok{};
  return Error{
      formatted("the launcher started {}, and --nnodes {}{} agents: start one task on each node "
                "(srun --ntasks-per-node=1), or leave --nnodes out{}",
                counted(tasks, "task"), is_too_many ? "allows at most " : "needs at least ",
                is_too_many ? options.max_nodes : options.min_nodes,
                tasks == 1 ? "; agents of other steps need the same --rdzv-endpoint" : "")};
}

RunShape shape_of(const RunOptions& options, int tasks) {
  RunShape shape;
  shape.min_nodes = options.min_nodes > 0 ? options.min_nodes : tasks;
  shape.max_nodes = options.max_nodes > 0 ? options.max_nodes : tasks;
  shape.active_nodes = options.active_nodes > 0 ? options.active_nodes : shape.max_nodes;
  shape.max_restarts = options.max_restarts;
  return shape;
}

// Whether the user says that this agent is the one at the endpoint. Slurm and mpirun know better.
bool is_said_to_listen(const RunOptions& options, const EnvMap& environment,
                       const LaunchedTask& task) {
  const bool is_said = options.rdzv_backend == RdzvBackend::kStatic
                           ? options.node_rank == 0
                           : options.rdzv_conf.is_host == true;
  return is_said && !has_placed_ranks(task.count, environment);
}

Status check_shape(const RunShape& shape) {
  if (shape.active_nodes < shape.min_nodes || shape.active_nodes > shape.max_nodes) {
    return Error{formatted("--active {}: expected a number from {} to {} (--nnodes)",
                           shape.active_nodes, shape.min_nodes, shape.max_nodes)};
  }
  return Ok{};
}

// A name that does not resolve yet is tried again when this agent connects.
Status listen_if_known(RunEndpoint& run) {
  const auto address = numeric_address(run.coordinator.host);
  return address ? listen_at_endpoint(run, *address) : Status(Ok{});
}

Result<RunEndpoint> from_static(const RunOptions& options, const RunShape& shape,
                                const EnvMap& environment, const LaunchedTask& task) {
  const int node_rank = options.node_rank.value_or(task.count > 1 ? task.rank : 0);
  RunEndpoint run;
  if (shape.min_nodes != shape.max_nodes) {
    return Error{
        "--nnodes MIN:MAX needs --rdzv-backend c10d: with static the number of nodes is fixed"};
  }
  if (node_rank >= shape.max_nodes) {
    return Error{formatted("--node-rank {}: expected a number below {} (--nnodes)", node_rank,
                           shape.max_nodes)};
  }
  run.coordinator = options.rdzv_endpoint.empty() ? Endpoint{without_brackets(options.master_addr),
                                                             options.master_port.value_or(0)}
                                                  : options.rdzv_address;
  if (run.coordinator.port == 0) run.coordinator.port = kStaticPort;
  run.order = node_rank;
  run.advice = "give all the address of node 0, and each its own --node-rank";
  if (node_rank != 0) {
    const bool is_only_task_of_node =
        task.count > 1 && task.nodes.size() == static_cast<std::size_t>(task.count);
    const auto address = numeric_address(run.coordinator.host);
    if (!is_only_task_of_node || !address || !is_own_address(*address)) return run;
    return Error{
        .message = formatted("{} is an address of {}, which is node {}, not node 0: {}",
                             printable(run.coordinator.host), host_name(), node_rank, run.advice),
        .only_here = true};
  }
  run.rule =
      is_said_to_listen(options, environment, task) ? ListenRule::kAsIsSaid : ListenRule::kAsNode0;
  if (const auto listening = listen_if_known(run); !listening) return listening.error();
  return run;
}

Result<RunEndpoint> from_c10d(const RunOptions& options, const EnvMap& environment,
                              const LaunchedTask& task) {
  RunEndpoint run;
  run.coordinator = options.rdzv_address;
  if (run.coordinator.port == 0) run.coordinator.port = kRendezvousPort;
  if (task.count > 1) run.order = task.rank;
  const auto is_host = options.rdzv_conf.is_host;
  if (is_host == false) return run;
  run.advice = "give is_host=true on the host of the endpoint alone";
  run.rule = !is_host                                        ? ListenRule::kIfOwn
             : is_said_to_listen(options, environment, task) ? ListenRule::kAsIsSaid
                                                             : ListenRule::kAsNode0;
  if (const auto listening = listen_if_known(run); !listening) return listening.error();
  return run;
}

Result<RunEndpoint> from_etcd(const RunOptions& options) {
  const auto& [name, port] = options.rdzv_address;
  const std::string host = name.find(':') != name.npos ? "[" + name + "]" : name;
  const RendezvousConf& conf = options.rdzv_conf;
  EtcdSettings settings;
  settings.url = conf.protocol + "://" + host + ":" + std::to_string(port == 0 ? kEtcdPort : port);
  settings.prefix = conf.etcd_prefix + "/run_" + options.rdzv_id + "/torchbridge/";
  settings.ca_cert = conf.ca_cert;
  settings.cert = conf.ssl_cert;
  settings.key = conf.ssl_cert_key;
  settings.user = conf.user;
  settings.password = conf.password;
  settings.timeout = conf.read_timeout;
  settings.lease = conf.keep_alive_interval * conf.keep_alive_max_attempt;
  auto record = etcd_coordinator_record(settings);
  if (!record) return record.error();
  RunEndpoint run;
  run.record = std::move(*record);
  return run;
}

Result<RunEndpoint> from_file(const RunOptions& options) {
  if (options.rdzv_endpoint.empty())
    return Error{"store_type=file needs --rdzv-endpoint with the path of a file"};
  RunEndpoint run;
  run.record = file_coordinator_record(options.rdzv_endpoint);
  return run;
}

Result<RunEndpoint> from_launcher(const LaunchOrigin& origin, const LaunchedTask& task) {
  const EnvMap& environment = origin.environment;
  LaunchSettings settings;
  const auto given = parse_options(environment.get(kOptionsVariable).value_or(""));
  if (!given) return Error{std::string(kOptionsVariable) + ": " + given.error().message};
  settings.options = *given;
  settings.shares_token = true;
  auto launch = resolve_launch(origin_of_agent(origin), settings);
  if (!launch) return launch.error();
  const Layout& layout = launch->env.layout;
  RunEndpoint run;
  run.coordinator = launch->env.master;
  run.is_of_launcher = true;
  run.run_id = launch->env.run_id;
  run.order = layout.rank;
  run.is_whole_node = launch->plan ? layout.world_size == layout.node_count : task.is_whole_node;
  if (!launch->plan) run.node = task.node;  // exported variables may lack the node
  if (launch->plan && !run.is_whole_node) run.node = "node " + std::to_string(layout.node_rank);
  run.listener = std::move(launch->store_socket);
  if (layout.rank == 0 && !run.listener.open()) {
    run.rule = ListenRule::kAsNode0;
    run.advice = "unset MASTER_ADDR";
    const auto address = numeric_address(run.coordinator.host);
    if (!address) return address.error();
    if (const auto listening = listen_at_endpoint(run, *address); !listening)
      return listening.error();
  }
  if (launch->plan && !launch->plan->token.empty()) run.key = RunKey::of_token(launch->plan->token);
  if (layout.world_size != task.count) {
    return Error{formatted("WORLD_SIZE={}, but the launcher started {} tasks: unset it",
                           layout.world_size, task.count)};
  }
  return run;
}

// A host that the options name, and how a message begins that is about it.
struct NamedHost {
  std::string host, subject;
};

// "--master-addr HOST", or the variable that gave the text.
NamedHost named_by(const std::string& option, const char* variable, const std::string& text,
                   const std::string& host, const EnvMap& environment) {
  const std::string exported(environment.get(variable).value_or(""));
  const bool is_exported = without_brackets(exported) == without_brackets(text);
  return {host, (is_exported ? std::string(variable) + "=" : option + " ") + printable(host)};
}

// The one for the coordinator, or its default; empty where that is of a service.
NamedHost named_host(const RunOptions& options, const EnvMap& environment) {
  if (is_etcd(options) || options.rdzv_conf.is_file) return {};
  if (const std::string& endpoint = options.rdzv_endpoint; !endpoint.empty())
    return named_by("--rdzv-endpoint", "PET_RDZV_ENDPOINT", endpoint, options.rdzv_address.host,
                    environment);
  if (options.rdzv_backend != RdzvBackend::kStatic)
    return {"localhost", "the default localhost of --rdzv-endpoint"};
  const std::string host = without_brackets(options.master_addr);
  if (host != RunOptions().master_addr)
    return named_by("--master-addr", "PET_MASTER_ADDR", options.master_addr, host, environment);
  return {host, formatted("{}{} of --master-addr",
                          options.master_port ? "--master-port with the default " : "the default ",
                          host)};
}

std::string first_label(const std::string& name) { return name.substr(0, name.find('.')); }

// Whether no node of the step has the address by its name. It may have it on another interface.
bool is_of_no_node(const std::string& address, const LaunchedTask& task) {
  return std::ranges::none_of(task.nodes, [&](const std::string& node) {
    const auto of_node = numeric_address(node);
    return !of_node || *of_node == address;
  });
}

// Whether it is the host where srun runs, which no task of the step does. Only then are all nodes'
// names looked up.
bool is_host_of_srun_alone(const std::string& host, const EnvMap& environment,
                           const LaunchedTask& task) {
  const auto address = numeric_address(host);
  if (!address || is_own_address(*address)) return false;
  const bool is_of_srun =
      environment.get("SLURM_LAUNCH_NODE_IPADDR") == *address ||
      first_label(host) ==
          first_label(std::string(environment.get("SLURM_SUBMIT_HOST").value_or("")));
  return is_of_srun && !task.nodes.empty() && is_of_no_node(*address, task);
}

// For the line of an agent that waits; in a step one agent reports that, and the others look up no
// names.
std::string doubt_about(const RunOptions& options, const EnvMap& environment,
                        const LaunchedTask& task) {
  if (task.count > 1 && !is_open_to_others(options))
    return "each task is to be an agent of this run: a run of one task alone needs --standalone";
  const auto [host, subject] = named_host(options, environment);
  if (host.empty()) return "";
  if (task.count <= 1 && !names_loopback(host)) return "";
  if (task.count <= 1)
    return formatted("{} is each host's own address: agents of other hosts do not find this one",
                     subject);
  if (task.rank != 1 || task.nodes.empty() || !names_endpoint(options)) return "";
  const auto address = numeric_address(host);
  if (!address || is_own_address(*address) || !is_of_no_node(*address, task)) return "";
  return formatted("{} is none of the step's nodes by their names, {} and others", subject,
                   task.nodes.front());
}

Error each_nodes_own(const std::string& subject, const LaunchedTask& task) {
  return {.message = formatted("{} is each node's own address, but the tasks are on several nodes: "
                               "leave it out, or give the address of a node of the step",
                               subject),
          .reported_elsewhere = task.rank != 0};
}

// The agents would wait for a coordinator that none of them can be. By hand a name that does not
// resolve is tried again.
Status check_named_host(const RunOptions& options, const EnvMap& environment,
                        const LaunchedTask& task) {
  const auto [host, subject] = named_host(options, environment);
  if (is_any_address(address_in_digits(host)) && !is_said_to_listen(options, environment, task)) {
    return Error{.message = formatted("{} is each host's own address, and other hosts connect to "
                                      "themselves there: give the address of node 0",
                                      subject),
                 .reported_elsewhere = task.rank != 0};
  }
  if (!task.has_several_nodes || !names_endpoint(options) || host.empty()) return Ok{};
  if (names_loopback(host)) return each_nodes_own(subject, task);
  if (const auto address = numeric_address(host); !address)
    return Error{.message = subject + ": " + address.error().message, .only_here = true};
  if (!is_host_of_srun_alone(host, environment, task)) return Ok{};
  return Error{.message = formatted("{} is the host where srun runs, and none of the step's nodes: "
                                    "leave it out, or give the address of a node of the step",
                                    subject),
               .reported_elsewhere = task.rank != 0};
}

// Rank 0's store would be there.
Status check_local_addr(const RunOptions& options, const EnvMap& environment,
                        const LaunchedTask& task) {
  const std::string& host = options.local_addr;
  if (!task.has_several_nodes || !names_loopback(host)) return Ok{};
  return each_nodes_own(named_by("--local-addr", "PET_LOCAL_ADDR", host, host, environment).subject,
                        task);
}

// Others may start the agents of the job's other nodes, so that it is no error.
std::string note_about(const RunOptions& options, const EnvMap& environment,
                       const LaunchedTask& task) {
  if (task.count > 1 && !is_open_to_others(options)) {
    const bool is_ignored = options.node_rank && *options.node_rank != task.rank;
    const bool is_reporter = task.rank == (options.node_rank == 0 ? 1 : 0);
    return is_ignored && is_reporter
               ? "--node-rank has no effect without --master-addr: the launcher numbers the nodes"
               : "";
  }
  // Nodes are numbered as they come. In a step one agent says so.
  if (options.node_rank.value_or(0) != 0 && options.rdzv_backend != RdzvBackend::kStatic &&
      task.rank == std::min(task.count, 1))
    return formatted("--node-rank has no effect with --rdzv-backend {}",
                     kRdzvBackends[static_cast<int>(options.rdzv_backend)]);
  const std::string job = task.count == 0 ? larger_job(environment, Alone::kAgent) : "";
  return job.empty()
             ? job
             : formatted("srun has not started this agent, but {}: start it with srun", job);
}

// Of a token where there is one: the id of the run is no secret.
Status set_key(RunEndpoint& run, const RunOptions& options, const LaunchOrigin& origin) {
  const bool has_all_agents = run.is_of_launcher && origin.facts;
  const auto of_launcher =
      has_all_agents ? token_of_launcher(*origin.facts, origin.environment) : std::string();
  auto token = rendezvous_token(options.rdzv_token_file,
                                of_launcher.empty() ? origin.environment : EnvMap());
  if (!token) return Error{.message = token.error().message, .only_here = true};
  if (token->empty()) *token = of_launcher;
  if (!token->empty())
    run.key = RunKey::of_token(*token);
  else if (!run.key.has_token())
    run.key = RunKey::of_run_id(run.run_id);
  return Ok{};
}

}  // namespace

Status listen_at_endpoint(RunEndpoint& run, const std::string& address) {
  const auto& [host, port] = run.coordinator;
  const bool must = run.rule >= ListenRule::kAsNode0, is_own = is_own_address(address);
  if (run.rule == ListenRule::kNever || (!must && !is_own)) return Ok{};
  if (!is_own && run.rule == ListenRule::kAsNode0) {
    return Error{.message = formatted("{} is not an address of {}, which is node 0: {}",
                                      printable(host), host_name(), run.advice),
                 .only_here = true};
  }
  const bool is_exact = is_numeric(host) || names_loopback(host);
  const std::string own = is_exact ? address : address_to_listen_on(address);
  // Who says that it is node 0 may have localhost, as by Kubeflow, and the others its name.
  const bool may_be_for_others = is_any_address(address) || (!is_numeric(host) && is_loopback(own));
  run.is_for_others = run.rule == ListenRule::kAsIsSaid && may_be_for_others;
  auto socket = listen_on({run.is_for_others ? any_address_for_others(own)
                           : is_own          ? own
                                             : any_address_like(address),
                           port});
  if (!socket && must) return Error{.message = socket.error().message, .only_here = true};
  if (!socket) return Ok{};
  run.listener = std::move(*socket);
  if (!is_own) run.own_host = loopback_like(address);
  return Ok{};
}

Result<LaunchedTask> launched_task(const LaunchOrigin& origin) {
  // A worker of the task's own agent starts a run of its own.
  if (origin.launcher == nullptr || origin.set_by == SetBy::kRun) return LaunchedTask{};
  const auto& facts = origin.facts;
  if (!facts) return origin.facts_error;
  LaunchedTask task{facts->rank, facts->world_size, is_typed_in_shell_of_step(origin.environment),
                    facts->has_several_nodes(), facts->nodes};
  const auto own = static_cast<std::size_t>(facts->node_rank);
  if (facts->local_size != 1) task.node = own < task.nodes.size() ? task.nodes[own] : host_name();
  task.is_whole_node = task.nodes.empty()
                           ? facts->local_size <= 1
                           : task.nodes.size() == static_cast<std::size_t>(task.count);
  return task;
}

Result<bool> has_several_agents(const RunOptions& options, const LaunchedTask& task) {
  if (options.is_standalone) return false;
  if (task.is_shell && task.count > 1) return typed_in_shell_of_step(task.count);
  const bool is_one_node = options.max_nodes == 1;
  if (is_one_node && task.count > 1) {
    return Error{
        .message = formatted("this is one of {} tasks, and with --nnodes 1 each would run a job of "
                             "its own: leave --nnodes out; for separate jobs give --standalone",
                             task.count),
        .reported_elsewhere = task.rank != 0};
  }
  if (const auto checked = check_task_count(options, task.count); !checked) {
    return Error{.message = checked.error().message, .reported_elsewhere = task.rank != 0};
  }
  return options.max_nodes > 1 || (options.max_nodes == 0 && task.count > 1);
}

Result<std::string> sign_of_other_agents(const RunOptions& options, const LaunchOrigin& origin,
                                         const LaunchedTask& task) {
  const EnvMap& environment = origin.environment;
  if (options.is_standalone || task.count > 0 || environment.has("RANK")) return std::string();
  const auto sign =
      sign_of_other_ranks(environment, names_of_ancestors(origin.processes), Alone::kAgent);
  return sign && options.max_nodes == 1 ? std::string() : sign;
}

Result<RunEndpoint> find_run_endpoint(const RunOptions& options, const LaunchOrigin& origin,
                                      const LaunchedTask& task) {
  const EnvMap& environment = origin.environment;
  const RunShape shape = shape_of(options, std::max(task.count, 1));
  if (const auto checked = check_shape(shape); !checked) return checked.error();
  if (const auto checked = check_named_host(options, environment, task); !checked)
    return checked.error();
  if (const auto checked = check_local_addr(options, environment, task); !checked)
    return checked.error();
  auto run = task.count > 1 && !is_open_to_others(options) ? from_launcher(origin, task)
             : is_etcd(options)                            ? from_etcd(options)
             : options.rdzv_conf.is_file                   ? from_file(options)
             : options.rdzv_backend == RdzvBackend::kStatic
                 ? from_static(options, shape, environment, task)
                 : from_c10d(options, environment, task);
  if (!run) return run.error();
  if (!run->is_of_launcher) {
    run->node = task.node;
    run->is_whole_node = task.is_whole_node;
  }
  run->shape = shape;
  run->is_output_shared = task.count > 1;
  if (!run->is_for_others) run->doubt = doubt_about(options, environment, task);
  run->note = note_about(options, environment, task);
  const bool has_id = !options.rdzv_id.empty() && options.rdzv_id != RunOptions().rdzv_id;
  if (has_id || run->run_id.empty()) run->run_id = options.rdzv_id;
  if (run->run_id.size() > kLongestRunId) {
    return Error{formatted("--rdzv-id has {} bytes: expected at most {}", run->run_id.size(),
                           kLongestRunId)};
  }
  if (options.role.size() > kLongestName) {
    return Error{
        formatted("--role has {} bytes: expected at most {}", options.role.size(), kLongestName)};
  }
  if (const auto set = set_key(*run, options, origin); !set) return set.error();
  return run;
}

}  // namespace torchbridge
