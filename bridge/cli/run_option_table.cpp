#include "bridge/cli/run_option_table.h"

#include <algorithm>
#include <array>
#include <climits>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/cli/run_option_values.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {
namespace {

// Stores what Parse makes of the text.
template <auto Member, auto Parse>
Status stored(RunOptions& options, const std::string& text) {
  auto value = Parse(text);
  if (!value) return value.error();
  options.*Member = std::move(*value);
  return Ok{};
}

template <auto Member>
Status text_stored(RunOptions& options, const std::string& text) {
  options.*Member = text;
  return Ok{};
}

template <auto Member, bool kValue = true>
Status flag_stored(RunOptions& options, const std::string&) {
  options.*Member = kValue;
  return Ok{};
}

Result<int> count_from_zero(const std::string& text) {
  return parse_whole_number(text, 0, INT_MAX);
}

Result<int> parse_active(const std::string& text) { return parse_whole_number(text, 1, INT_MAX); }

Status store_nodes(RunOptions& options, const std::string& text) {
  const auto range = parse_node_range(text);
  if (!range) return range.error();
  options.min_nodes = range->least;
  options.max_nodes = range->most;
  return Ok{};
}

// Without --standalone, and where the store is no file, which this would be the path of.
Status store_endpoint(RunOptions& options, const std::string& text) {
  options.rdzv_endpoint = text;
  if (text.empty()) return Ok{};
  const auto address = parse_endpoint(text);
  const bool is_path = options.rdzv_conf.is_file && options.rdzv_backend < RdzvBackend::kEtcd;
  if (!address && !is_path && !options.is_standalone) return address.error();
  options.rdzv_address = address ? *address : Endpoint{};
  return Ok{};
}

// Neither has an effect with --standalone.
Status store_master_addr(RunOptions& options, const std::string& text) {
  options.master_addr = text;
  return options.is_standalone ? Status(Ok{}) : check_host(text);
}

Status store_local_addr(RunOptions& options, const std::string& text) {
  options.local_addr = without_brackets(text);
  return options.is_standalone || text.empty() ? Status(Ok{}) : check_host(text);
}

// As torchrun: with --run-path the others have no effect.
Status store_run_path(RunOptions& options, const std::string&) {
  options.program_kind = RunOptions::Program::kRunPath;
  return Ok{};
}

Status store_module(RunOptions& options, const std::string&) {
  if (options.program_kind == RunOptions::Program::kByName)
    options.program_kind = RunOptions::Program::kModule;
  return Ok{};
}

Status store_no_python(RunOptions& options, const std::string&) {
  if (options.program_kind == RunOptions::Program::kModule)
    return Error{"a module is run by Python: leave out --module or --no-python"};
  if (options.program_kind != RunOptions::Program::kByName) return Ok{};
  if (options.passes_local_rank)
    return Error{"--local-rank=N is passed to scripts alone: give --use-env"};
  options.program_kind = RunOptions::Program::kNoPython;
  return Ok{};
}

Status store_numa_binding(RunOptions& options, const std::string& text) {
  options.numa_binding = text == "node"        ? NumaMode::kNode
                         : text == "socket"    ? NumaMode::kSocket
                         : text == "exclusive" ? NumaMode::kExclusive
                                               : NumaMode::kCoreComplex;
  return Ok{};
}

Status store_log_format(RunOptions& options, const std::string& text) {
  options.log_format = text == "json" ? LogFormat::kJson : LogFormat::kPrefix;
  return Ok{};
}

Status check_interval(RunOptions&, const std::string& text) {
  const auto seconds = parse_seconds(text);
  return seconds ? Status(Ok{}) : Status(seconds.error());
}

Status store_start_method(RunOptions& options, const std::string& text) {
  if (text == "forkserver") options.preload = {"torch"};
  return Ok{};
}

Status check_event_handler(RunOptions&, const std::string& text) {
  if (text == "null") return Ok{};
  return Error{
      formatted("'{}': handlers of events are Python's, and no Python runs here: --log-format json "
                "and --json-summary FILE have the events",
                printable(text))};
}

Status check_logs_specs(RunOptions&, const std::string& text) {
  if (text == "default") return Ok{};
  return Error{
      formatted("'{}': an entry point of Python, and no Python runs here: --log-dir, --redirects "
                "and --tee set where logs go",
                printable(text))};
}

// An option without a group is in that of the option before it.
template <std::size_t size>
constexpr std::array<RunOption, size> with_groups(std::array<RunOption, size> options) {
  for (std::size_t i = 1; i < size; ++i) {
    if (options[i].group.empty()) options[i].group = options[i - 1].group;
  }
  return options;
}

constexpr auto kOptions = with_groups(std::to_array<RunOption>({
    {.name = "nnodes",
     .metavar = "N|MIN:MAX",
     .variable = "PET_NNODES",
     .group = "Nodes and rendezvous",
     .help = "Nodes of the run, or the fewest and the most that it may have; default: the number "
             "of tasks of srun or mpirun, else 1",
     .difference = "torchrun: 1:1; here the tasks of srun or mpirun, where these started several",
     .store = store_nodes},
    {.name = "active",
     .metavar = "N",
     .origin = OptionOrigin::kOurs,
     .help = "Number of nodes that run workers; further nodes wait and replace a node that is "
             "lost; default: all",
     .store = stored<&RunOptions::active_nodes, parse_active>},
    {.name = "nproc-per-node",
     .metavar = "N|auto|cpu|gpu",
     .variable = "PET_NPROC_PER_NODE",
     .help = "Workers on this node: a number, one for each CPU (cpu), one for each GPU (gpu), or "
             "gpu where the node has one, else cpu (auto); default: auto where srun or mpirun "
             "started one task on each node, else 1",
     .difference = "torchrun: 1; here auto for one task of srun or mpirun; no `xpu`",
     .store = stored<&RunOptions::nproc_per_node, parse_worker_count>},
    {.name = "standalone",
     .variable = "PET_STANDALONE",
     .help = "This node alone; --rdzv-backend, --rdzv-endpoint and --rdzv-id have no effect then",
     .store = flag_stored<&RunOptions::is_standalone>},
    {.name = "rdzv-backend",
     .metavar = "static|c10d|etcd|etcd-v2",
     .default_text = "static",
     .variable = "PET_RDZV_BACKEND",
     .help = "How the nodes find each other; c10d and etcd: --rdzv-endpoint, static: --master-addr "
             "and --node-rank",
     .difference = "backends of Python packages are rejected",
     .store = stored<&RunOptions::rdzv_backend, parse_rdzv_backend>},
    {.name = "rdzv-id",
     .metavar = "ID",
     .default_text = "none",
     .variable = "PET_RDZV_ID",
     .help = "Id of the run; agents with another id are rejected; default: none, and a random one "
             "on one node without --master-port",
     .difference =
         "on one node torchrun takes a random one, since 2.12, in place of one that is given",
     .store = text_stored<&RunOptions::rdzv_id>},
    {.name = "rdzv-token-file",
     .metavar = "FILE",
     .origin = OptionOrigin::kOurs,
     .help = "File with the token of the run; default: TORCHBRIDGE_RDZV_TOKEN, or of the launcher",
     .store = text_stored<&RunOptions::rdzv_token_file>},
    {.name = "rdzv-conf",
     .metavar = "LIST",
     .variable = "PET_RDZV_CONF",
     .help = "Settings of the rendezvous: KEY=VALUE,KEY=VALUE",
     .difference = "also in quotes; a key that no backend reads gets a line",
     .store = stored<&RunOptions::rdzv_conf, parse_rdzv_conf>},
    {.name = "rdzv-endpoint",
     .metavar = "HOST[:PORT]",
     .variable = "PET_RDZV_ENDPOINT",
     .help = "Address of the node that coordinates the run (default port: 29400), or of etcd",
     .store = store_endpoint},
    {.name = "node-rank",
     .metavar = "N",
     .variable = "PET_NODE_RANK",
     .help = "Number of this node, from 0, for the backend static; default: that of the task of "
             "srun or mpirun, else 0",
     .difference = "torchrun: 0; here the number of the task, where srun or mpirun started several",
     .store = stored<&RunOptions::node_rank, count_from_zero>},
    {.name = "master-addr",
     .metavar = "HOST",
     .default_text = "127.0.0.1",
     .variable = "PET_MASTER_ADDR",
     .help = "Node 0, for the backend static",
     .store = store_master_addr},
    {.name = "master-port",
     .metavar = "PORT",
     .variable = "PET_MASTER_PORT",
     .help = "Port of the store on node 0, for the backend static; 0, the default: a free port",
     .difference = "torchrun: 29500 over several nodes, and before 2.12 on one; here a free port",
     .store = stored<&RunOptions::master_port, parse_port>},
    {.name = "local-addr",
     .metavar = "HOST",
     .variable = "PET_LOCAL_ADDR",
     .help = "Address of this node for the others; default: the address of its host name",
     .store = store_local_addr},

    {.name = "run-path",
     .variable = "PET_RUN_PATH",
     .group = "Program",
     .help = "Run the script with Python's runpy.run_path",
     .difference = "in a new Python, not in a copy of the agent",
     .store = store_run_path},
    {.name = "module",
     .letter = 'm',
     .variable = "PET_MODULE",
     .help = "The program is the name of a Python module, as for python -m",
     .store = store_module},
    {.name = "use-env",
     .origin = OptionOrigin::kTorchLaunch,
     .help = "Pass no --local-rank=N to the program; only torchbridge launch passes it",
     .difference = "of torch.distributed.launch, which is `torchbridge launch` here",
     .store = flag_stored<&RunOptions::passes_local_rank, false>},
    {.name = "no-python",
     .variable = "PET_NO_PYTHON",
     .help = "Execute the program itself, without python before it",
     .difference = "not needed for programs that can be executed and do not end in .py",
     .store = store_no_python},
    {.name = "role",
     .metavar = "NAME",
     .default_text = "default",
     .variable = "PET_ROLE",
     .help = "Role of the workers: ROLE_NAME, and in the prefix of their lines",
     .store = text_stored<&RunOptions::role>},
    {.name = "virtual-local-rank",
     .variable = "PET_VIRTUAL_LOCAL_RANK",
     .help = "Each worker has LOCAL_RANK 0, and in CUDA_VISIBLE_DEVICES its own GPU alone",
     .store = flag_stored<&RunOptions::has_virtual_local_rank>},
    {.name = "numa-binding",
     .metavar = "node|socket|exclusive|core-complex",
     .help = "Bind each worker to CPUs near its GPU",
     .store = store_numa_binding},
    {.name = "start-method",
     .metavar = "spawn|fork|forkserver",
     .default_text = "spawn",
     .variable = "PET_START_METHOD",
     .help = "forkserver: --preload torch; spawn, fork: accepted, without effect",
     .difference = "forkserver: --preload torch; others: without effect",
     .store = store_start_method},
    {.name = "preload",
     .metavar = "MODULE,...",
     .origin = OptionOrigin::kOurs,
     .help = "Import these Python modules once on this node, and fork the workers; torch: all that "
             "DDP needs",
     .store = stored<&RunOptions::preload, parse_modules>},

    {.name = "max-restarts",
     .metavar = "N",
     .default_text = "0",
     .variable = "PET_MAX_RESTARTS",
     .group = "Failures",
     .help = "How many times all workers are restarted after one failed",
     .store = stored<&RunOptions::max_restarts, count_from_zero>},
    {.name = "restart-backoff",
     .metavar = "SECONDS",
     .default_text = "0",
     .origin = OptionOrigin::kOurs,
     .help = "Wait before the first restart; doubled for each further one, up to 60",
     .store = stored<&RunOptions::restart_backoff, parse_seconds>},
    {.name = "grace",
     .metavar = "SECONDS",
     .default_text = "30",
     .origin = OptionOrigin::kOurs,
     .help = "Time that workers have from the first signal to SIGKILL",
     .store = stored<&RunOptions::grace, parse_seconds>},
    {.name = "shutdown-timeout",
     .metavar = "SECONDS",
     .variable = "PET_SHUTDOWN_TIMEOUT",
     .other_variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
     .help = "The same as --grace, which it replaces",
     .difference = "the default is that of --grace, 30; fractions, too",
     .since = "2.12",
     .store = stored<&RunOptions::grace, parse_seconds>},
    {.name = "exit-barrier",
     .metavar = "SECONDS",
     .default_text = "300",
     .origin = OptionOrigin::kOurs,
     .help = "Time for workers that use no CPU time to end after others have ended well",
     .store = stored<&RunOptions::exit_barrier, parse_seconds>},
    {.name = "health-check",
     .metavar = "CMD",
     .origin = OptionOrigin::kOurs,
     .help = "Shell command that is run for each worker; a worker for which it fails has failed",
     .store = text_stored<&RunOptions::health_check>},
    {.name = "health-check-interval",
     .metavar = "SECONDS",
     .default_text = "10",
     .origin = OptionOrigin::kOurs,
     .help = "Time between two health checks of a worker",
     .store = stored<&RunOptions::health_check_interval, parse_seconds_above_zero>},
    {.name = "uninterruptible-timeout",
     .metavar = "SECONDS",
     .default_text = "0",
     .variable = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT",
     .origin = OptionOrigin::kOurs,
     .help = "Time in uninterruptible sleep after which a worker has failed; 0: any. Variable: "
             "torchrun's",
     .store = stored<&RunOptions::uninterruptible_timeout, parse_seconds>},
    {.name = "signals-to-handle",
     .metavar = "LIST",
     .default_text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .variable = "PET_SIGNALS_TO_HANDLE",
     .other_variable = "TORCHELASTIC_SIGNALS_TO_HANDLE",
     .help = "Signals that end the run and are passed to the workers",
     .difference = "checked; also TORCHELASTIC_SIGNALS_TO_HANDLE",
     .store = stored<&RunOptions::signals_to_handle, parse_signals>},
    {.name = "monitor-interval",
     .metavar = "SECONDS",
     .default_text = "0.1",
     .variable = "PET_MONITOR_INTERVAL",
     .help = "Accepted, without effect",
     .difference = "checked, without effect: the kernel reports the end of a worker at once",
     .store = check_interval},

    {.name = "log-dir",
     .metavar = "DIR",
     .variable = "PET_LOG_DIR",
     .group = "Output",
     .help = "Folder below which each run makes one for its logs; default: a temporary folder",
     .store = text_stored<&RunOptions::log_dir>},
    {.name = "redirects",
     .letter = 'r',
     .metavar = "STREAMS",
     .default_text = "0",
     .variable = "PET_REDIRECTS",
     .help = "What goes to files instead of the terminal: 0 nothing, 1 stdout, 2 stderr, 3 both, "
             "of all workers; or of some, by LOCAL_RANK:NUMBER,...",
     .difference = "local ranks above 9, too",
     .store = stored<&RunOptions::redirects, parse_streams>},
    {.name = "tee",
     .letter = 't',
     .metavar = "STREAMS",
     .default_text = "0",
     .variable = "PET_TEE",
     .help = "What goes to files and to the terminal, as for --redirects",
     .difference = "local ranks above 9, too",
     .store = stored<&RunOptions::tee, parse_streams>},
    {.name = "log-line-prefix-template",
     .metavar = "TEXT",
     .variable = "PET_LOG_LINE_PREFIX_TEMPLATE",
     .other_variable = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
     .help = "What is printed before a line of --tee, with ${role_name}, ${rank}, ${local_rank} "
             "and ${hostname} replaced; default: [${role_name}${local_rank}]:",
     .since = "2.14",
     .store = text_stored<&RunOptions::log_line_prefix_template>},
    {.name = "local-ranks-filter",
     .metavar = "LIST",
     .variable = "PET_LOCAL_RANKS_FILTER",
     .help = "Local ranks whose output is printed, as in 0,1; files have that of all",
     .store = stored<&RunOptions::local_ranks_filter, parse_ranks>},
    {.name = "duplicate-stdout-filters",
     .metavar = "LIST",
     .variable = "PET_DUPLICATE_STDOUT_FILTERS",
     .help = "Texts with commas between them (,, is a comma of a text): lines of stdout that "
             "contain one are copied to a file",
     .store = stored<&RunOptions::duplicate_stdout_filters, parse_filters>},
    {.name = "duplicate-stderr-filters",
     .metavar = "LIST",
     .variable = "PET_DUPLICATE_STDERR_FILTERS",
     .help = "The same for lines of stderr",
     .store = stored<&RunOptions::duplicate_stderr_filters, parse_filters>},
    {.name = "log-format",
     .metavar = "prefix|json",
     .default_text = "prefix",
     .origin = OptionOrigin::kOurs,
     .help = "Lines with a prefix that names the rank, or one JSON object for each line",
     .store = store_log_format},
    {.name = "json-summary",
     .metavar = "FILE",
     .origin = OptionOrigin::kOurs,
     .help = "File for how the run ended, as JSON",
     .store = text_stored<&RunOptions::json_summary>},
    {.name = "print-completion",
     .metavar = "bash|zsh|fish|tcsh",
     .help = "Print the completion for a shell",
     .difference = "here without a package of Python; of `torchbridge`; also for fish",
     .since = "2.14",
     .store = text_stored<&RunOptions::print_completion>},
    {.name = "event-log-handler",
     .metavar = "NAME",
     .default_text = "null",
     .variable = "PET_EVENT_LOG_HANDLER",
     .help = "Only null is accepted; --log-format json and --json-summary FILE have the events",
     .difference = "others are rejected: no Python runs here",
     .store = check_event_handler},
    {.name = "logs-specs",
     .metavar = "NAME",
     .help = "Only default is accepted; --log-dir, --redirects and --tee set where logs go",
     .difference = "others than `default` are rejected: no Python runs here",
     .store = check_logs_specs},
}));

}  // namespace

std::span<const RunOption> run_options() { return kOptions; }

std::vector<std::string> named_values(const RunOption& option) {
  std::vector<std::string> values;
  for (std::string_view rest = option.metavar; !rest.empty();) {
    const auto word = take_until(rest, '|');
    if (word.front() >= 'a' && word.front() <= 'z') values.emplace_back(word);
  }
  return values;
}

bool takes_named_values_only(const RunOption& option) {
  const auto values = named_values(option);
  return !values.empty() &&
         values.size() == 1u + static_cast<std::size_t>(std::ranges::count(option.metavar, '|'));
}

}  // namespace torchbridge
