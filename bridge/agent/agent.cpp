#include "bridge/agent/agent.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "bridge/agent/local_rounds.h"
#include "bridge/agent/node_rounds.h"
#include "bridge/agent/restart_budget.h"
#include "bridge/agent/run_endpoint.h"
#include "bridge/agent/summary_file.h"
#include "bridge/agent/worker_count.h"
#include "bridge/base/message_text.h"
#include "bridge/binding/numa_mode.h"
#include "bridge/bootstrap/descriptor_limit.h"
#include "bridge/host/oom_kills.h"
#include "bridge/host/read_cpu_groups.h"
#include "bridge/host/read_machine.h"
#include "bridge/host/standard_streams.h"
#include "bridge/launch/end_step.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"
#include "bridge/run_values/run_report.h"
#include "bridge/start/preloaded_python.h"
#include "bridge/supervision/attempt.h"
#include "bridge/supervision/guardian.h"
#include "bridge/supervision/worker_command.h"
#include "bridge/supervision/worker_environment.h"
#include "bridge/supervision/worker_report.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;

// Of a run on one node. As with torchrun since 2.12, one without a name and an endpoint has an id
// that no other run has.
std::string run_id_of(const RunOptions& options) {
  const bool has_endpoint = options.rdzv_backend != RdzvBackend::kStatic ||
                            !options.rdzv_endpoint.empty() || options.master_port.has_value();
  const bool is_given = !options.is_standalone && !options.rdzv_id.empty();
  if (is_named(options) || (is_given && has_endpoint)) return options.rdzv_id;
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/uuid"), id);
  return id.empty() ? "standalone-" + std::to_string(getpid()) : id;
}

// Waits until the readers of standard output and error have all. It does so without limit, as any
// program, until a signal comes: see note_stop.
void finish_output(AgentContext& context) {
  constexpr std::chrono::seconds kLast{
      1};  // for a reader that reads, and what workers printed until their SIGKILL
  const SteadyTime last = Clock::now() + kLast;
  const auto deadline = [&] { return std::max(context.output_until, last); };
  auto& [out, err] = context.consoles;
  while ((out.has_pending() || err.has_pending()) && Clock::now() < deadline()) {
    if (wait_for_events(context, deadline()).is_guardian_gone) return;
  }
  if (!out.has_pending()) return;
  print_line(context, formatted("the last {} bytes of standard output were not printed: their "
                                "reader did not take them in time (--grace)",
                                out.pending()));
}

class Agent {
 public:
  Agent(AgentContext& context, Rounds& rounds, const RunReport& named)
      : context_(context), rounds_(rounds), own_(named) {}

  int run();

 private:
  void run_attempt(const Round& round);
  AttemptReport report_of_attempt(const Attempt& attempt, std::int64_t oom_kills_before) const;
  int end(RunEnd end);
  void pass_on_root_cause() const;
  void keep_error_files() const;
  void name_folder_in(RunReport& report) const;
  bool is_verbose() const;

  AgentContext& context_;
  Rounds& rounds_;
  RunReport own_;        // of this agent's workers alone
  int next_number_ = 0;  // of an attempt, at the least
  Clock::time_point start_ = Clock::now();
};

int Agent::run() {
  for (;;) {
    auto next = rounds_.next();
    if (auto* over = std::get_if<RunEnd>(&next))
      return context_.is_guardian_gone ? EXIT_FAILURE : end(std::move(*over));
    run_attempt(std::get<Round>(next));
  }
}

void Agent::run_attempt(const Round& round) {
  const AttemptFacts& facts = round.facts;
  // A coordinator that took the place of another counts from zero.
  const int number = std::max(round.number, next_number_);
  next_number_ = number + 1;
  if (const auto made = context_.folder.begin_attempt(number, facts.workers); !made) {
    return rounds_.conclude(StartFailure{EXIT_FAILURE, made.error()});
  }
  if (!is_loopback(facts.master.host)) {  // else all nodes are this host
    const auto usable = check_interface_variables(context_.environment,
                                                  usable_interfaces(facts.ranks.node_count > 1));
    if (!usable) return rounds_.conclude(StartFailure{EXIT_FAILURE, usable.error()});
  }
  const std::int64_t oom_kills_before = oom_kills();
  Attempt attempt(context_, facts);
  if (const auto failure = attempt.start(round.store_port)) return rounds_.conclude(*failure);
  if (is_verbose()) {
    print_line(context_,
               formatted("started {} workers of {}, MASTER_PORT={}, restarts used: {}, logs: {}",
                         facts.workers, own_.program, facts.master.port, facts.restart_count,
                         context_.folder.path()));
  }
  attempt.supervise();
  own_.attempts.push_back(report_of_attempt(attempt, oom_kills_before));
  rounds_.conclude(own_.attempts.back());
}

AttemptReport Agent::report_of_attempt(const Attempt& attempt,
                                       std::int64_t oom_kills_before) const {
  const bool is_short_of_memory = oom_kills() > oom_kills_before;
  AttemptReport report;
  report.restart_count = attempt.facts().restart_count;
  report.started = attempt.started();
  report.lifetime = std::chrono::system_clock::now() - attempt.started();
  for (const WorkerProcess& worker : attempt.workers()) {
    if (worker.wait_status == 0 && !worker.is_running) continue;
    WorkerReport& failure = report.failures.emplace_back(attempt.report_of(worker));
    failure.log_end = read_log_end(failure);
    const bool is_killed =
        WIFSIGNALED(worker.wait_status) && WTERMSIG(worker.wait_status) == SIGKILL;
    failure.is_out_of_memory =
        is_short_of_memory && is_killed && !worker.is_ended_by_agent && worker.health.empty();
  }
  report.failures = in_order(std::move(report.failures));
  report.can_restart = attempt.stuck().empty();
  return report;
}

int Agent::end(RunEnd end) {
  const int exit_code = end.exit_code;
  const RunOptions& options = context_.options;
  if (!end.message.empty()) print_line(context_, end.message);
  const bool has_failed =
      exit_code != 0 && exit_code != kRequeueExitCode && context_.stop_signal == 0;
  context_.leaves_agents = context_.stop_signal == 0 && end.leaves_agents;
  if (has_failed) pass_on_root_cause();
  if (has_failed) keep_error_files();
  if (end.report) {
    name_folder_in(*end.report);
    end.report->lifetime = Clock::now() - start_;
    const auto& attempts = end.report->attempts;
    if (has_failed && !attempts.empty() && !attempts.back().failures.empty()) {
      print_line(context_, summary_text(*end.report));
    }
    if (!options.json_summary.empty()) {
      const std::string text = summary_json(*end.report, context_.stop_signal);
      if (!write_summary(context_, text))
        print_line(context_, formatted("--json-summary '{}': cannot write it",
                                       printable(options.json_summary)));
    }
  }
  finish_output(context_);
  return exit_code;
}

// To the launcher that started this agent.
void Agent::pass_on_root_cause() const {
  const std::string own_file(context_.environment.get("TORCHELASTIC_ERROR_FILE").value_or(""));
  if (own_file.empty() || own_.attempts.empty() || own_.attempts.back().failures.empty()) return;
  const WorkerReport& root = own_.attempts.back().failures.front();
  if (!root.error) return;
  const int code =
      WIFSIGNALED(root.wait_status) ? -WTERMSIG(root.wait_status) : WEXITSTATUS(root.wait_status);
  const auto copied = copy_error_record(root.error_file, own_file, code);
  if (!copied) print_line(context_, copied.error().message);
}

// The summary of a failed run, which over several nodes is the coordinator's, names them.
void Agent::keep_error_files() const {
  if (own_.attempts.empty()) return;
  const auto& failures = own_.attempts.back().failures;
  const auto has_file = [](const WorkerReport& failure) { return !failure.error_file.empty(); };
  if (std::any_of(failures.begin(), failures.end(), has_file)) context_.folder.keep();
}

// None that is about to be removed.
void Agent::name_folder_in(RunReport& report) const {
  const std::string& removed = context_.folder.temporary();
  if (removed.empty()) report.folder = context_.folder.path();
  for (AttemptReport& attempt : report.attempts) {
    for (WorkerReport& failure : attempt.failures) {
      if (!removed.empty() && failure.error_file.starts_with(removed + "/"))
        failure.error_file.clear();
    }
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

int fail_before_start(const Error& error) {
  return error.reported_elsewhere ? EXIT_FAILURE : fail_before_start(error.message);
}

// Of an error that other agents of the launcher's step may not have: they would wait for this one,
// where the run needs all of them.
int fail_in_step(const Error& error, const RunOptions& options, const LaunchOrigin& origin,
                 const LaunchedTask& task) {
  const int exit_code = fail_before_start(error);
  const bool are_all_needed = options.min_nodes == 0 || options.min_nodes >= task.count;
  if (task.count > 1 && are_all_needed && !options.is_standalone) end_step(origin);
  return exit_code;
}

// Read only where an option asks for it.
Result<Machine> machine_for(const RunOptions& options, bool is_whole_node) {
  using Kind = WorkersPerNode::Kind;
  const Kind kind = options.nproc_per_node.kind;
  const bool is_counted = kind == Kind::kByLaunch ? is_whole_node : kind != Kind::kNumber;
  if (is_counted || options.numa_binding != NumaMode::kNone) return read_machine();
  return Machine();
}

// By local rank; empty without --numa-binding.
Result<std::vector<CpuSet>> cpus_of_workers(const RunOptions& options, const EnvMap& environment,
                                            Machine machine, int count) {
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

// Of several agents of one container, which have one variable, the first has the port. As with
// torchrun, a value that is no port does not end the run.
Socket open_liveness(const EnvMap& environment) {
  constexpr char kVariable[] = "TORCHELASTIC_HEALTH_CHECK_PORT";
  if (!environment.has(kVariable)) return Socket();
  const auto port = environment.required_integer(kVariable, 1, 65535);
  auto socket =
      port ? listen_on({"0.0.0.0", static_cast<int>(*port)}) : Result<Socket>(port.error());
  if (socket) return std::move(*socket);
  const std::string reason = (port ? std::string(kVariable) + ": " : "") + socket.error().message;
  std::fprintf(stderr, "torchbridge: no liveness probe is answered: %s\n", reason.c_str());
  return Socket();
}

// A number of workers, and where they run.
struct WorkerPlan {
  int count = 1;
  std::vector<CpuSet> cpus;
};

Result<WorkerPlan> plan_workers(const RunOptions& options, const EnvMap& environment,
                                bool is_whole_node) {
  const auto machine = machine_for(options, is_whole_node);
  if (!machine) return machine.error();
  const auto count = worker_count(options.nproc_per_node, is_whole_node, environment, *machine);
  if (!count) return count.error();
  const auto devices = check_virtual_devices(environment, options, *count);
  if (!devices) return devices.error();
  auto cpus = cpus_of_workers(options, environment, *machine, *count);
  if (!cpus) return cpus.error();
  return WorkerPlan{*count, std::move(*cpus)};
}

// The same when signals are read by the events.
int fail_before_start(AgentContext& context, const Error& error) {
  if (!error.reported_elsewhere) print_line(context, error.message);
  finish_output(context);
  return EXIT_FAILURE;
}

// At its end the temporary folder of the run goes, also where the guardian is gone.
class FolderOfRun {
 public:
  explicit FolderOfRun(RunFolder& folder) : folder_(folder) {}
  ~FolderOfRun() { folder_.remove_if_temporary(); }
  FolderOfRun(const FolderOfRun&) = delete;

 private:
  RunFolder& folder_;
};

// With `endpoint` over several nodes. `guardian` takes the name of the folder.
int run_rounds(AgentContext& context, RestartBudget& budget, std::optional<RunEndpoint> endpoint,
               int workers, int guardian) {
  RunReport report;
  report.program = context.body ? "the function" : program_name(context.options);
  report.run_id = endpoint ? endpoint->run_id : run_id_of(context.options);
  report.is_named = endpoint ? report.run_id != RunOptions().rdzv_id : is_named(context.options);
  report.host = context.host;
  // Until it takes part, the agents of other nodes wait for this one.
  context.leaves_agents = endpoint && endpoint->shape.min_nodes == endpoint->shape.max_nodes;
  auto folder = RunFolder::make(context.options, report.run_id,
                                std::string(context.environment.get("TMPDIR").value_or("/tmp")));
  if (!folder) return budget.remove(), fail_before_start(context, folder.error());
  context.folder = *folder;
  const FolderOfRun removed_at_end(context.folder);
  const std::string& temporary = context.folder.temporary();
  if (!temporary.empty()) (void)!write(guardian, temporary.data(), temporary.size());
  if (!endpoint) {
    if (const auto emptied = empty_summary(context.options.json_summary); !emptied) {
      return budget.remove(), fail_before_start(context, emptied.error());
    }
    LocalRounds rounds(context, budget, workers, report);
    return Agent(context, rounds, report).run();
  }
  auto rounds = NodeRounds::open(context, budget, std::move(*endpoint), workers, report);
  if (!rounds) return fail_before_start(context, rounds.error());
  context.leaves_agents = false;
  context.peers = rounds->get();
  context.events.set_peers(context.peers);
  return Agent(context, **rounds, report).run();
}

// OpenMP divides CPUs among its threads when it is loaded, and those are the interpreter's; or "".
std::string_view variable_of_places(const EnvMap& environment) {
  for (const std::string_view name :
       {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    const std::string_view value = environment.get(name).value_or("");
    if (!value.empty() && value != "false" && value != "FALSE") return name;
  }
  return "";
}

// It imports its modules while the nodes of the run wait for each other.
void preload(AgentContext& context, int workers, std::optional<PreloadedPython>& python) {
  const RunOptions& options = context.options;
  if (options.preload.empty() || context.body) return;
  if (!is_run_by_python(options, context.environment)) {
    print_line(context, formatted("--preload has no effect: '{}' is not run by Python",
                                  printable(options.program.front())));
    return;
  }
  const std::string_view places = variable_of_places(context.environment);
  if (context.worker_cpus.size() > 1 && !places.empty()) {
    print_line(context, formatted("--preload has no effect: {} and --numa-binding give each "
                                  "worker's threads CPUs when it imports: unset one of them",
                                  places));
    return;
  }
  ProcessSpec spec;
  spec.command = worker_command(options, context.environment, 0);
  spec.environment = preload_environment(context.environment, options, workers);
  if (context.worker_cpus.size() == 1) spec.cpus = context.worker_cpus.front();
  spec.outer = context.outer;
  context.python = &python.emplace(options.preload, spec);
  context.events.set_python(context.python);
}

int run_as_child(const RunOptions& options, const LaunchOrigin& origin,
                 const std::function<int()>& body, const GuardianLink& guardian) {
  const EnvMap& environment = origin.environment;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const RaisedDescriptorLimit descriptors;  // of each worker, and in one agent of each node
  const auto task = launched_task(origin);
  if (!task) return fail_before_start(task.error());
  const auto has_several = has_several_agents(options, *task);
  if (!has_several) return fail_before_start(has_several.error());
  const auto sign = *has_several ? Result<std::string>(std::string())
                                 : sign_of_other_agents(options, origin, *task);
  if (!sign) return fail_before_start(sign.error());
  if (!sign->empty()) std::fprintf(stderr, "torchbridge: %s\n", sign->c_str());
  const auto fail = [&](const Error& error) { return fail_in_step(error, options, origin, *task); };
  std::optional<RunEndpoint> endpoint;
  if (*has_several) {
    auto found = find_run_endpoint(options, origin, *task);
    if (!found && !found.error().only_here) return fail_before_start(found.error());
    if (!found) return fail(found.error());
    endpoint = std::move(*found);
    if (!endpoint->note.empty()) std::fprintf(stderr, "torchbridge: %s\n", endpoint->note.c_str());
  } else if (options.node_rank.value_or(0) != 0 && !options.is_standalone) {
    return fail_before_start(
        formatted("--node-rank {}: expected 0, with --nnodes 1", *options.node_rank));
  }
  const bool is_whole_node =
      task->count > 0 && (endpoint ? endpoint->is_whole_node : task->count == 1);
  const auto workers = plan_workers(options, environment, is_whole_node);
  if (!workers) return fail(workers.error());
  // Else another agent does, or a record.
  const bool counts_restarts = !endpoint || endpoint->listener.open();
  auto budget = counts_restarts ? RestartBudget::open(options, getppid()) : RestartBudget();
  if (!budget) return fail(budget.error());
  auto liveness = open_liveness(environment);
  auto events = AgentEvents::open(options.signals_to_handle, guardian.end, std::move(liveness));
  if (!events) return fail(events.error());
  Consoles consoles;
  RunFolder folder;
  const OuterState outer{events->signals().outer_mask(), descriptors.old()};
  AgentContext context{options,  environment, origin.launch(), body,  *events,
                       consoles, folder,      host_name(),     outer, workers->cpus};
  if (has_step_of_several(origin)) context.continue_agents = [&] { continue_step(origin); };
  std::optional<PreloadedPython> python;
  preload(context, workers->count, python);
  const int exit_code =
      run_rounds(context, *budget, std::move(endpoint), workers->count, guardian.folder);
  events->signals().keep_blocked();  // one that comes now must not change the exit status
  if (context.leaves_agents && task->count > 1) end_step(origin);
  return exit_code;
}

}  // namespace

int run_agent(const RunOptions& options, const LaunchOrigin& origin) {
  return run_agent(options, origin, nullptr);
}

int run_agent(const RunOptions& options, const LaunchOrigin& origin,
              const std::function<int()>& body) {
  if (!open_standard_streams())
    return fail_before_start(formatted("cannot open /dev/null: {}", std::strerror(errno)));
  const bool ends_process = !body;
  return run_guarded(options.signals_to_handle, ends_process, [&](const GuardianLink& guardian) {
    return run_as_child(options, origin, body, guardian);
  });
}

}  // namespace torchbridge
