#include "bridge/launch/launch_origin.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>

#include "bridge/base/hostlist.h"
#include "bridge/base/message_text.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/user_values.h"
#include "bridge/launch/publish_store.h"
#include "bridge/net/address.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

void add_pals_nodes(LaunchFacts& facts, const EnvMap& environment) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  const auto path = environment.get("PALS_APINFO");
  const bool is_complete = facts.world_size > 0 && facts.local_size == facts.world_size;
  if (!path || is_complete) return;
  std::ifstream file{std::string(*path), std::ios::binary};
  std::string content{std::istreambuf_iterator<char>(file), {}};
  LaunchFacts completed = facts;
  if (content.size() > kLargest || !add_pals_apinfo(completed, content) ||
      !set_local_position(completed))
    return;
  facts = std::move(completed);
}

Result<LaunchFacts> read_facts(const Launcher& launcher, const EnvMap& environment) {
  auto facts = read_launcher(launcher, environment);
  if (!facts || launcher.read != read_pals) return facts;
  add_pals_nodes(*facts, environment);
  if (facts->world_size > 0) return facts;
  return Error{
      "pals: PALS_RANKID is set, but PMI_SIZE is not, and the file of PALS_APINFO does not give "
      "the number of ranks: start the program with mpiexec --pmi=cray, or set RANK, WORLD_SIZE, "
      "MASTER_ADDR and MASTER_PORT for every rank"};
}

// Whether nothing above this process is hidden.
bool is_all_seen(const std::vector<ProcessEntry>& processes) {
  return !processes.empty() && processes.back().id == 1 && has_process_ids_of_host();
}

// Whether the variables of a task of srun have come to a process that is not below that task, as by
// ssh, or in a shell of tmux: all above it are seen, no launcher is among them, and its cgroup is
// none of a step. What a container's engine starts is not below it either, and may be the task.
bool has_left_task(const EnvMap& environment, const std::vector<ProcessEntry>& processes) {
  const auto may_be_between = [](const ProcessEntry& process) {
    return launcher_with_process(process.name) != nullptr || process.name == "conmon" ||
           process.name.starts_with("containerd-shim");
  };
  return environment.has("SLURM_TASK_PID") && is_all_seen(processes) &&
         std::ranges::none_of(processes, may_be_between) && !is_in_step_of_slurm();
}

Error left_task(const LaunchFacts& facts) {
  return {
      formatted("the variables are of task {} of {} of Slurm's step {}.{}, but this process is "
                "not below it (ssh, tmux): start it with srun, or unset SLURM_TASK_PID if it is",
                facts.rank, facts.world_size, facts.job_id, facts.step_id)};
}

// By its variables alone: whether they are of a step in which the job was submitted, which Slurm
// passes on. A step's nodes are the job's, this node is one of them, and has all tasks that the
// counts say.
bool has_outer_step(const EnvMap& environment) {
  const auto step = read_slurm_step(environment);
  auto job = parse_hostlist(environment.get("SLURM_JOB_NODELIST").value_or(""));
  if (!step || step->heterogeneous || !job || job->empty()) return false;
  std::vector<std::string> nodes = step->nodes;
  std::ranges::sort(nodes);
  std::ranges::sort(*job);
  // srun leaves the list of nodes that it inherits, and sets their number.
  const bool has_own_number = environment.get("SLURM_NNODES") == std::to_string(nodes.size());
  if (!has_own_number && !std::ranges::includes(*job, nodes)) return true;
  const auto name = environment.get("SLURMD_NODENAME");
  if (!name) return false;
  const auto own = std::ranges::find(step->nodes, *name);
  if (own == step->nodes.end()) return true;
  const auto task = read_slurm(environment);
  const auto at = static_cast<std::size_t>(own - step->nodes.begin());
  return task && at < step->tasks_per_node.size() && !task->ranks_here.empty() &&
         std::ssize(task->ranks_here) != step->tasks_per_node[at];
}

// The step that /proc shows above this process, as in ProcessEntry, or "salloc"; empty where it
// shows none, or another launcher before it.
std::string step_above(const std::vector<ProcessEntry>& processes) {
  for (const auto& process : processes) {
    if (process.name == "salloc") return process.name;
    if (!process.step.empty()) return process.step;
    if (launcher_with_process(process.name) != nullptr) return "";
  }
  return "";
}

// The step in whose cgroup this process is, where it is of this job; else empty. A process that
// pam_slurm_adopt has adopted is below no step.
std::string step_by_cgroup(const EnvMap& environment) {
  const std::string found = step_of_cgroup(), id = found.substr(found.find('.') + 1);
  const std::string job = found.substr(0, found.find('.'));
  const bool has_number = parse_integer(job, 0, INT64_MAX).has_value();
  if (found.empty() || id == "extern") return "";
  if (has_number && environment.get("SLURM_JOB_ID") != job) return "";
  const bool is_own = !parse_integer(id, 0, INT64_MAX);
  return is_own || environment.get("SLURM_STEP_ID") == id ? found : "";
}

// Whether no launcher has started this process, but a batch script or a shell of salloc has, below
// this step. Slurm gives these the variables of the step in which they were submitted.
bool is_of_job_alone(const std::string& step_above, const EnvMap& environment) {
  if (step_above == "salloc") return true;
  for (const char* own : {".batch", ".interactive", ".extern"}) {
    if (step_above.ends_with(own)) return true;
  }
  // A component of a heterogeneous step has "7.0+1", and in a heterogeneous job the id of a job of
  // its own. In a cgroup the job may have a name instead.
  const std::string above = step_above.substr(0, step_above.find('+'));
  const auto dot = above.find('.');
  const auto job = environment.get("SLURM_JOB_ID"), step = environment.get("SLURM_STEP_ID");
  const bool has_numbers = dot != above.npos && parse_integer(above.substr(0, dot), 0, INT64_MAX) &&
                           parse_integer(above.substr(dot + 1), 0, INT64_MAX);
  return has_numbers && job && step && !environment.has("SLURM_HET_SIZE") &&
         above != std::string(*job) + "." + std::string(*step);
}

// The pid of the task of srun, where only scripts are between it and this process; else of this
// process. Variables do not distinguish an srun inside an mpirun's rank from the reverse, but
// between such a task and this process there is no mpirun.
std::int64_t slurm_task_or_self(const EnvMap& environment,
                                const std::vector<ProcessEntry>& processes) {
  const auto task = environment.integer("SLURM_TASK_PID", 1, INT32_MAX);
  for (const auto& process : processes) {
    if (!task || !*task || starts_ranks(process.name)) break;  // also where it is the task itself
    if (process.id == **task) return process.id;
  }
  return processes.empty() ? 0 : processes.front().id;
}

// Whether RANK and WORLD_SIZE were set below the process that the launcher started, as by a script
// that starts ranks, and not exported around the launcher. Where /proc does not show the launcher,
// the topmost process that has the launcher's variables counts. False where /proc shows neither.
bool is_set_below_task(const Layout& at, const LaunchOrigin& origin) {
  const auto& above = origin.processes;
  const auto is_launcher = [&](const ProcessEntry& process) {
    return launcher_with_process(process.name) == origin.launcher;
  };
  const auto launcher = std::ranges::find_if(above, is_launcher);
  const auto is_of_task = [&](const EnvMap& environment) {
    const auto facts = read_launcher(*origin.launcher, environment);
    return facts && run_id_of(*facts) == origin.launch() && facts->rank == origin.facts->rank;
  };
  for (auto process = launcher; process - above.begin() > 1;) {
    const EnvMap outside = environment_of((--process)->id);
    if (launcher == above.end() && !is_of_task(outside)) continue;
    return outside.begin() != outside.end() &&
           !(outside.get("RANK") == std::to_string(at.rank) &&
             outside.get("WORLD_SIZE") == std::to_string(at.world_size));
  }
  return false;
}

// Of which torchrun sets one to another value than the plugin and exec, whose run id it may have; a
// script that sets ranks does not.
constexpr std::initializer_list<const char*> kOfTorchrunsWorkers = {"TORCHELASTIC_USE_AGENT_STORE",
                                                                    "ROLE_RANK", "ROLE_WORLD_SIZE"};

Status check_against_launcher(const TorchEnv& env, const LaunchOrigin& origin) {
  const bool is_ours =
      origin.is_set_by_us() && (!is_changed(origin.environment, {"RANK"}) ||
                                is_changed(origin.environment, kOfTorchrunsWorkers));
  if (!origin.facts || is_ours) return Ok{};
  const LaunchFacts& facts = *origin.facts;
  const Layout& at = env.layout;
  const bool is_agents = at.node_count == facts.world_size;
  // srun started this very process, so that no torchrun is between.
  const bool is_task_itself =
      !origin.processes.empty() &&
      origin.environment.get("SLURM_TASK_PID") == std::to_string(origin.processes.front().id);
  const bool is_apart = !origin.is_of_mpirun() && !is_task_itself;
  const bool by_torchrun = origin.set_by == SetBy::kTorchrun;
  if (origin.is_launchers(at) || (by_torchrun && (is_agents || is_apart))) return Ok{};
  if (origin.is_set_inside || (facts.world_size == 1 && is_set_below_task(at, origin))) return Ok{};
  const std::string who =
      facts.launcher == "openmpi" || facts.launcher == "hydra" ? "mpirun" : facts.launcher;
  const std::string joined =
      by_torchrun ? ""
      : facts.world_size > 1
          ? kForRanksInside
          : formatted(
                "; to join ranks that {} starts one by one, set RANK to MASTER_PORT in a shell "
                "that stays above the command: sh -c 'RANK={} ... COMMAND; exit $?'",
                who, at.rank);
  return Error{.message = formatted(
                   "RANK='{}' and WORLD_SIZE='{}' are exported, but {} started rank {} of {}: "
                   "unset RANK and WORLD_SIZE, or the variables of {} if they are stale{}",
                   at.rank, at.world_size, who, facts.rank, facts.world_size, who, joined),
               .only_here = at.world_size == facts.world_size};  // for some rank it is right
}

// Of ranks that a script starts inside a task. Those of the only task at its own address, and those
// of the node's only task at a loopback address, are on this node: LOCAL_RANK is RANK there, and
// another one is the task's.
EnvMap of_ranks_inside(const EnvMap& environment, const LaunchFacts& task) {
  const std::string host(environment.get("MASTER_ADDR").value_or(""));
  const bool is_here = (task.local_size == 1 && names_loopback(host)) ||
                       (task.world_size == 1 && is_own_address(canonical_address(host)));
  return without_outer_ranks(environment,
                             !is_here || environment.get("LOCAL_RANK") == environment.get("RANK"));
}

// The process group in the foreground of the terminal; -1 without a terminal.
pid_t foreground_group() {
  const Socket terminal(open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  return terminal.open() ? tcgetpgrp(terminal.descriptor()) : -1;
}

// Of an exported RANK that is not the launcher's, or without its companions: the launcher's.
int rank_of(const LaunchOrigin& origin) {
  if (origin.given) return origin.given->layout.rank;
  if (origin.facts) return origin.facts->rank;
  const EnvMap& environment = origin.environment;
  const bool one_of_several = environment.has("WORLD_SIZE") || environment.has("MASTER_ADDR") ||
                              environment.has("MASTER_PORT");
  const auto rank = environment.integer("RANK", 0, INT32_MAX);
  return one_of_several && rank && *rank ? static_cast<int>(**rank) : 0;
}

}  // namespace

LaunchOrigin::LaunchOrigin(EnvMap inherited, std::vector<ProcessEntry> found)
    : environment(std::move(inherited)), processes(std::move(found)) {
  find_launcher();
  const bool has_left =
      launcher != nullptr && launcher->read == read_slurm && has_left_task(environment, processes);
  if (has_left)
    leave_task();
  else if (launcher != nullptr)
    take_facts();
  find_setter();
  given = given_by(environment, *this);
  rank = rank_of(*this);
}

void LaunchOrigin::find_launcher() {
  std::string step = step_above(processes);
  launcher = innermost_launcher(environment, slurm_task_or_self(environment, processes));
  // A container, or an option of /proc, hides slurmstepd, and what may be between it and a rank of
  // mpirun.
  const bool may_be_below_step = launcher != nullptr && launcher->read == read_slurm &&
                                 !processes.empty() &&
                                 std::ranges::none_of(processes, [](const ProcessEntry& process) {
                                   return launcher_with_process(process.name) != nullptr;
                                 });
  if (step.empty() && may_be_below_step) step = step_by_cgroup(environment);
  is_seen_in_step = !step.empty();
  const bool is_hidden = !is_seen_in_step && may_be_below_step && !is_all_seen(processes);
  if (is_of_job_alone(step, environment) || (is_hidden && has_outer_step(environment))) {
    environment = without_launch(environment);
    launcher = innermost_launcher(environment, slurm_task_or_self(environment, processes));
  }
}

// Of a process with the variables of a task of srun that it is not below.
void LaunchOrigin::leave_task() {
  if (is_changed(environment, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}))
    environment = of_ranks_inside(environment, LaunchFacts());
  const auto task = read_facts(*launcher, environment);
  environment = without_launch(environment);
  const bool is_one_of_several = task && task->world_size > 1 && !environment.has("RANK");
  if (is_one_of_several)
    facts_error = left_task(*task);
  else
    launcher = nullptr;
}

void LaunchOrigin::take_facts() {
  auto read = read_facts(*launcher, environment);
  if (!read) {
    facts_error = read.error();
    return;
  }
  environment = without_outer_run(environment, *read);
  facts = std::move(*read);
}

void LaunchOrigin::find_setter() {
  const bool is_only_task = facts && facts->world_size == 1;
  is_set_inside = (is_changed(environment, {"WORLD_SIZE"}) ||
                   (is_only_task && is_changed(environment, {"RANK"}))) &&
                  !is_changed(environment, kOfTorchrunsWorkers);
  if (is_set_inside) environment = of_ranks_inside(environment, facts.value_or(LaunchFacts()));
  set_by = setter_of(environment).who;
  const auto run_id = environment.get("TORCHELASTIC_RUN_ID");
  if (set_by == SetBy::kTorchrun && facts && run_id == run_id_of(*facts))
    set_by = SetBy::kPlugin;  // older than kSetByVariable
}

Result<TorchEnv> given_by(const EnvMap& environment, const LaunchOrigin& origin) {
  auto env = torch_env_from(environment);
  // Without a launcher a user or a script set the variables of each process: other processes may
  // have the right ones.
  if (!env && !origin.facts) return Error{.message = env.error().message, .only_here = true};
  if (!env) return env;
  if (const auto fits = check_against_launcher(*env, origin); !fits) return fits.error();
  return env;
}

LaunchOrigin origin_of_agent(const LaunchOrigin& origin) {
  LaunchOrigin own = origin;
  const auto& [given, facts] = std::tie(origin.given, origin.facts);
  const bool is_launchers = given && origin.is_launchers(given->layout);
  if (!facts || origin.set_by != SetBy::kOthers || origin.is_set_inside || is_launchers) return own;
  own.environment = {};
  for (const auto& [name, value] : origin.environment) {
    if (value.empty() || !is_rank_or_size(name)) own.environment.set(name, value);
  }
  own.given = given_by(own.environment, own);
  own.rank = facts->rank;
  return own;
}

// The variable is inherited by steps and jobs that are started in the shell; their tasks have no
// terminal.
bool has_terminal_of_step(const EnvMap& environment) {
  return environment.has("SLURM_PTY_PORT") && foreground_group() >= 0;
}

// A shell with job control, an interactive one, puts it in the foreground of the terminal. What a
// script starts is not such a job, as it shares the script's process group.
bool is_typed_in_shell_of_step(const EnvMap& environment) {
  return has_terminal_of_step(environment) && foreground_group() != getsid(0);
}

Error typed_in_shell_of_step(int tasks) {
  return {
      formatted("this shell is one of the {} tasks of its step (srun --pty), and the others do not "
                "run this command: start it with srun --overlap -n{}; for ranks of this shell "
                "alone: torchbridge run --standalone",
                tasks, tasks)};
}

}  // namespace torchbridge
