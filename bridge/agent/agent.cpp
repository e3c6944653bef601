#include "bridge/agent/agent.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "bridge/agent/restart_budget.h"
#include "bridge/agent/worker_count.h"
#include "bridge/binding/numa_mode.h"
#include "bridge/core/launch_facts.h"
#include "bridge/host/oom_kills.h"
#include "bridge/host/read_cpu_groups.h"
#include "bridge/host/read_machine.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"
#include "bridge/run_values/restart_policy.h"
#include "bridge/run_values/run_report.h"
#include "bridge/supervision/attempt.h"
#include "bridge/supervision/guardian.h"
#include "bridge/supervision/worker_command.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;

std::string run_id_of(const RunOptions& options) {
  if (!options.is_standalone) return options.rdzv_id;
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/uuid"), id);
  return id.empty() ? "standalone-" + std::to_string(getpid()) : id;
}

Status check_nodes(const RunOptions& options) {
  if (options.max_nodes > 1) {
    const std::string most = std::to_string(options.max_nodes);
    return Error{"--nnodes " + (options.min_nodes == options.max_nodes ? "" : std::to_string(options.min_nodes) + ":") +
                 most + ": several nodes are not supported yet; on one node leave the option out"};
  }
  if (options.node_rank != 0) {
    return Error{"--node-rank " + std::to_string(options.node_rank) + ": expected 0, with --nnodes 1"};
  }
  return Ok{};
}

std::string without_brackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// Bound, for rank 0 to listen on. A port of its own for each attempt, so that none finds the store of another.
struct StorePort {
  Socket socket;
  Endpoint master;
};

// What the options say of MASTER_ADDR and MASTER_PORT; port 0: a free one. As in torchrun, --rdzv-endpoint is both for
// the backend static.
Endpoint wanted_master(const RunOptions& options) {
  const std::string& endpoint = options.rdzv_endpoint;
  if (options.is_standalone) return {"127.0.0.1", 0};
  if (options.rdzv_backend != "static" || endpoint.empty()) {
    return {without_brackets(options.master_addr), options.master_port.value_or(0)};
  }
  const auto colon = endpoint.rfind(':');
  const bool has_port = colon != endpoint.npos && (endpoint.find(':') == colon || endpoint[colon - 1] == ']');
  const auto port = has_port ? parse_integer(endpoint.substr(colon + 1), 0, 65535) : std::nullopt;
  return {without_brackets(endpoint.substr(0, has_port ? colon : endpoint.npos)), static_cast<int>(port.value_or(0))};
}

Result<StorePort> reserve_port(const RunOptions& options) {
  const auto [host, port] = wanted_master(options);
  const auto address = numeric_address(host);
  if (!address) return Error{"--master-addr " + printable(host) + ": " + address.error().message};
  if (!is_own_address(*address)) {
    return Error{"--master-addr " + printable(host) + " is not an address of " + host_name() + ", where rank 0 runs"};
  }
  if (port != 0 && !port_is_free(port)) {
    return Error{"--master-port " + std::to_string(port) + " is in use on " + host_name() +
                 ": leave the option out for a free one, or end the program that uses it"};
  }
  // Only where it must: a store at a loopback address is for this node.
  const std::string listening = is_loopback(*address) ? *address : address_to_listen_on(*address);
  constexpr int kTries = 100;  // a store of Python listens on all addresses: the port is to be free on all
  for (int i = 0;; ++i) {
    auto socket = reserve({listening, port});
    if (!socket) return socket.error();
    const auto bound = bound_port(*socket);
    if (!bound) return bound.error();
    const bool is_free = port != 0 || (port_is_free(*bound) && hold_port(*bound));
    if (is_free) return StorePort{std::move(*socket), {*address, *bound}};
    if (i == kTries) return Error{"no port of " + *address + " is free"};
  }
}

// Descriptors 0 to 2 are there from here on: a file that is opened later does not get their numbers.
bool open_standard_streams() {
  for (;;) {
    const int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return false;
    if (descriptor > STDERR_FILENO) return close(descriptor) == 0;
    fcntl(descriptor, F_SETFD, 0);
  }
}

class Agent {
 public:
  Agent(AgentContext& context, int local_world_size, RestartBudget& budget)
      : context_(context), local_world_size_(local_world_size), budget_(budget) {
    report_.program = context.body ? "the function" : program_name(context.options);
    report_.run_id = run_id_of(context.options);
    report_.host = context.host;
  }

  int run();

 private:
  // Nothing where the workers ran.
  std::optional<StartFailure> run_attempt();
  void record(const Attempt& attempt, std::int64_t oom_kills_before);
  void wait_before_restart(std::chrono::duration<double> delay);
  int end(int exit_code);
  int fail(const StartFailure& failure);
  void finish_output();
  bool is_verbose() const;

  AgentContext& context_;
  int local_world_size_;
  RestartBudget& budget_;
  RunReport report_;
  std::vector<AttemptEnd> ends_;
  Clock::time_point start_ = Clock::now();
};

int Agent::run() {
  auto folder = RunFolder::make(context_.options, report_.run_id,
                                std::string(context_.environment.get("TMPDIR").value_or("/tmp")));
  if (!folder) return fail({EXIT_FAILURE, folder.error()});
  context_.folder = *folder;
  report_.folder = folder->path();
  for (;;) {
    if (const auto failure = run_attempt()) return fail(*failure);
    const RestartRules rules{context_.options.max_restarts,
                             std::chrono::duration<double>(context_.options.restart_backoff), context_.stop_signal};
    const Decision decision = decide(ends_, budget_.used(), rules);
    report_.reason = decision.reason;
    // The run may go on under another agent: its budget stays, and nobody waits for a report.
    if (context_.is_guardian_gone) return EXIT_FAILURE;
    if (decision.next == Decision::Next::kEnd) return end(decision.exit_code);
    if (const auto used = budget_.use_one(); !used) print_line(context_, used.error().message);
    print_line(context_,
               "restart " + std::to_string(budget_.used()) + " of " + std::to_string(context_.options.max_restarts));
    wait_before_restart(decision.delay);
    if (context_.is_guardian_gone) return EXIT_FAILURE;
    if (context_.stop_signal != 0) return end(128 + context_.stop_signal);
  }
}

std::optional<StartFailure> Agent::run_attempt() {
  const auto port = reserve_port(context_.options);
  if (!port) return StartFailure{EXIT_FAILURE, port.error()};
  AttemptFacts facts;
  facts.local_world_size = facts.world_size = local_world_size_;
  facts.master = port->master;
  facts.run_id = report_.run_id;
  facts.restart_count = budget_.used();
  facts.max_restarts = context_.options.max_restarts;
  if (const auto made = context_.folder.begin_attempt(facts.restart_count, local_world_size_); !made) {
    return StartFailure{EXIT_FAILURE, made.error()};
  }
  const std::int64_t oom_kills_before = oom_kills();
  Attempt attempt(context_, facts);
  if (auto failure = attempt.start(port->socket)) return failure;
  if (is_verbose()) {
    print_line(context_, "started " + std::to_string(local_world_size_) + " workers of " + report_.program +
                             ", MASTER_PORT=" + std::to_string(facts.master.port) +
                             ", restarts used: " + std::to_string(facts.restart_count) + ", logs: " + report_.folder);
  }
  attempt.supervise();
  record(attempt, oom_kills_before);
  return std::nullopt;
}

void Agent::record(const Attempt& attempt, std::int64_t oom_kills_before) {
  const bool is_short_of_memory = oom_kills() > oom_kills_before;
  AttemptReport report;
  report.restart_count = attempt.facts().restart_count;
  report.started = attempt.started();
  report.lifetime = std::chrono::system_clock::now() - attempt.started();
  for (const Worker& worker : attempt.workers()) {
    if (worker.wait_status == 0 && !worker.is_running) continue;
    report.failures.push_back(report_of(worker, context_.host, attempt.started()));
    report.failures.back().is_out_of_memory = is_short_of_memory && !worker.is_ended_by_agent && worker.health.empty();
  }
  report.failures = in_order(std::move(report.failures));

  AttemptEnd end;
  end.lifetime = report.lifetime;
  end.can_restart = attempt.stuck().empty();
  for (const WorkerReport& worker : report.failures) {
    if (is_consequence(worker)) continue;
    end.failures.push_back({worker.rank, worker.wait_status, worker.error ? worker.error->message : ""});
  }
  ends_.push_back(end);
  report_.attempts.push_back(std::move(report));
}

void Agent::wait_before_restart(std::chrono::duration<double> delay) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(delay);
  while (Clock::now() < until && context_.stop_signal == 0 && !context_.is_guardian_gone) {
    const Events events = context_.events.wait(until, nullptr, context_.consoles);
    if (!events.stop_signals.empty()) context_.stop_signal = events.stop_signals.front();
    context_.is_guardian_gone = events.is_guardian_gone;
  }
}

int Agent::end(int exit_code) {
  report_.exit_code = exit_code;
  report_.lifetime = Clock::now() - start_;
  const RunOptions& options = context_.options;
  budget_.remove();
  const bool has_failed = exit_code != 0 && exit_code != kRequeueExitCode && context_.stop_signal == 0;
  if (has_failed && !report_.attempts.back().failures.empty()) {
    print_line(context_, summary_text(report_));
    const WorkerReport& root = report_.attempts.back().failures.front();
    const std::string own_file(context_.environment.get("TORCHELASTIC_ERROR_FILE").value_or(""));
    const int code = WIFSIGNALED(root.wait_status) ? -WTERMSIG(root.wait_status) : WEXITSTATUS(root.wait_status);
    if (root.error && !own_file.empty()) {
      const auto copied = copy_error_record(root.error_file, own_file, code);
      if (!copied) print_line(context_, copied.error().message);
    }
  }
  if (!options.json_summary.empty()) {
    std::ofstream file(options.json_summary);
    file << summary_json(report_, context_.stop_signal) << std::flush;
    if (!file) print_line(context_, "--json-summary '" + printable(options.json_summary) + "': cannot write it");
  }
  if (exit_code == 0) context_.folder.remove_if_temporary();
  finish_output();
  return exit_code;
}

int Agent::fail(const StartFailure& failure) {
  print_line(context_, failure.error.message);
  budget_.remove();
  context_.folder.remove_if_temporary();
  finish_output();
  return failure.exit_code;
}

// Waits for the readers of standard output and error, until they have all or the user ends it.
void Agent::finish_output() {
  while (context_.consoles.out.has_pending() || context_.consoles.err.has_pending()) {
    const Events events = context_.events.wait(SteadyTime::max(), nullptr, context_.consoles);
    if (events.is_guardian_gone || !events.stop_signals.empty()) return;
  }
}

bool Agent::is_verbose() const {
  const auto level = context_.environment.get("LOGLEVEL");
  return level == "INFO" || level == "DEBUG";
}

int fail_before_start(const std::string& message) {
  std::fprintf(stderr, "torchbridge: %s\n", message.c_str());
  return EXIT_FAILURE;
}

int fail_in_each(int tasks) {
  return fail_before_start("this is one of " + std::to_string(tasks) +
                           " tasks, and each would run a job of its own: start one task (srun -n1, mpirun -np 1), or "
                           "the program itself by srun --torch-env or torchbridge exec; for separate jobs give "
                           "--standalone");
}

// Read only where an option asks for it.
Result<Machine> machine_for(const RunOptions& options, int launched_tasks) {
  const bool is_counted =
      options.nproc_per_node.empty() ? launched_tasks == 1 : !parse_integer(options.nproc_per_node, 1, kMaxRanks);
  if (is_counted || options.numa_binding != NumaMode::kNone) return read_machine();
  return Machine();
}

// By local rank; empty without --numa-binding.
Result<std::vector<CpuSet>> cpus_of_workers(const RunOptions& options, const EnvMap& environment, Machine machine,
                                            int count) {
  std::vector<CpuSet> cpus;
  if (options.numa_binding == NumaMode::kNone) return cpus;
  if (const auto read = read_cpu_groups("", machine.topology); !read) return read.error();
  const auto gpus = gpus_of_workers(environment, machine.topology);
  if (!gpus) return gpus.error();
  for (int local_rank = 0; local_rank < count; ++local_rank) {
    auto own = cpus_of_worker(options.numa_binding, machine, *gpus, local_rank);
    if (!own) return own.error();
    cpus.push_back(std::move(*own));
  }
  return cpus;
}

Result<Socket> open_liveness(const EnvMap& environment) {
  if (!environment.has("TORCHELASTIC_HEALTH_CHECK_PORT")) return Socket();
  const auto port = environment.required_integer("TORCHELASTIC_HEALTH_CHECK_PORT", 1, 65535);
  if (!port) return port.error();
  return listen_on({"0.0.0.0", static_cast<int>(*port)});
}

int run_as_child(const RunOptions& options, const EnvMap& environment, const std::function<int()>& body, int guardian) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (const auto checked = check_nodes(options); !checked) return fail_before_start(checked.error().message);
  const auto task = launched_task(environment);
  if (!task) return fail_before_start(task.error().message);
  if (task->count > 1 && !options.is_standalone) return task->rank == 0 ? fail_in_each(task->count) : EXIT_FAILURE;
  const auto machine = machine_for(options, task->count);
  if (!machine) return fail_before_start(machine.error().message);
  const auto count = worker_count(options.nproc_per_node, task->count, environment, *machine);
  if (!count) return fail_before_start(count.error().message);
  const auto devices = check_virtual_devices(environment, options, *count);
  if (!devices) return fail_before_start(devices.error().message);
  const auto cpus = cpus_of_workers(options, environment, *machine, *count);
  if (!cpus) return fail_before_start(cpus.error().message);
  auto budget = RestartBudget::open(options, getppid());
  if (!budget) return fail_before_start(budget.error().message);
  auto liveness = open_liveness(environment);
  if (!liveness) return fail_before_start("TORCHELASTIC_HEALTH_CHECK_PORT: " + liveness.error().message);
  auto events = AgentEvents::open(options.signals_to_handle, guardian, std::move(*liveness));
  if (!events) return fail_before_start(events.error().message);
  Consoles consoles;
  RunFolder folder;
  AgentContext context{options, environment, body, *events, consoles, folder, host_name(), *cpus};
  return Agent(context, *count, *budget).run();
}

}  // namespace

int run_agent(const RunOptions& options, const EnvMap& environment) { return run_agent(options, environment, nullptr); }

int run_agent(const RunOptions& options, const EnvMap& environment, const std::function<int()>& body) {
  if (!open_standard_streams()) return fail_before_start(std::string("cannot open /dev/null: ") + std::strerror(errno));
  return run_guarded(options.signals_to_handle,
                     [&](int guardian) { return run_as_child(options, environment, body, guardian); });
}

}  // namespace torchbridge
