// The SPANK hooks of `srun --torch-env[=LIST]`: each a thin wrapper that lets no exception into Slurm.
#include <poll.h>
#include <slurm/slurm.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <torchbridge/core/launchers/slurm.h>
#include <torchbridge/task/roll.h>
#include <torchbridge/task/store_port.h>
#include <torchbridge/task/task_environment.h>

#include "controller.h"
#include "failure_desk.h"
#include "placement.h"
#include "settings.h"
#include "task_board.h"
#include "task_report.h"

// Slurm looks all of these up by name. The header declares the hooks without C linkage, and a constant in C++ is not
// visible outside unless it is declared so.
#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
}
#pragma GCC visibility pop
SPANK_PLUGIN(torch_env, 1)

// Slurm's own processes have it; found at run time, for the plugin links no libslurm.
extern "C" __attribute__((weak)) int slurm_kill_job_step(uint32_t job_id, uint32_t step_id, uint16_t signal);

// libstdc++'s own would print the exception's name, for which it brings a demangler of 50 kB into every srun.
namespace __gnu_cxx {
void __verbose_terminate_handler() { abort(); }
}  // namespace __gnu_cxx

namespace torchbridge {
namespace {

Settings settings;
TaskBoard board;                  // in slurmstepd and its tasks
std::optional<FailureDesk> desk;  // in srun
// Of the step, asked once on each node before the tasks are forked; empty where their environment tells it.
Result<std::vector<int>> node_of_rank = std::vector<int>();

// `task` false: srun, sbatch and salloc, whose log goes to the user's terminal. True: the task's own stderr.
void complain(const std::string& message) { slurm_error("torch-env: %s", message.c_str()); }
void tell_task(const std::string& message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message.c_str()); }

template <class Body>
int guarded(const char* hook, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    slurm_error("torch-env: %s: %s", hook, error.what());
  } catch (...) {
    slurm_error("torch-env: %s: an unknown error", hook);
  }
  return ESPANK_ERROR;
}

std::string joined(int argc, char** argv) {
  std::string list;
  for (int i = 0; i < argc; ++i) list += (i == 0 ? "" : ",") + std::string(argv[i]);
  return list;
}

bool submits_jobs(spank_context_t context) { return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR; }

EnvMap job_environment(spank_t spank) {
  char** variables = nullptr;
  return spank_get_item(spank, S_JOB_ENV, &variables) == ESPANK_SUCCESS ? EnvMap::from(variables) : EnvMap();
}

// "TORCH_ENV" as the user exported it.
std::optional<std::string_view> exported_list() {
  const char* value = getenv("TORCH_ENV");
  return value == nullptr ? std::nullopt : std::optional<std::string_view>(value);
}

// Called with the list of --torch-env, in srun before the job is submitted and again on each node.
int take_option(int, const char* list, int remote) {
  return guarded("option", [&]() -> int {
    // Steps inside `salloc --torch-env` or sbatch inherit the option; Slurm 22.05 then writes its missing list as "(null)".
    const bool has_list = list != nullptr && std::string_view(list) != "(null)";
    settings.set_command_line(has_list ? list : "");
    if (remote != 0) return ESPANK_SUCCESS;
    const auto options = settings.resolve(exported_list());
    if (options) return ESPANK_SUCCESS;
    complain(options.error().message);
    return ESPANK_BAD_ARG;
  });
}

int register_option(spank_t spank) {
  static char name[] = "torch-env";
  static char argument[] = "[LIST]";
  static char usage[] = "set torchrun's environment for each task; LIST is KEY=VALUE,... (see torch-env's manual)";
  static spank_option option = {name, argument, usage, 2, 0, take_option};  // 2: the argument is optional
  return spank_option_register(spank, &option);
}

// Batch scripts, salloc's shell and the extern step are no ranks of anything.
bool is_rank_step(spank_t spank) {
  uint32_t step = 0;
  return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step < SLURM_MAX_NORMAL_STEP_ID;
}

// One rank without its environment would leave the others waiting for it.
void end_step(spank_t spank) {
  uint32_t job = 0, step = 0;
  if (slurm_kill_job_step == nullptr) return;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS) return;
  slurm_kill_job_step(job, step, SIGKILL);
}

// An error returned to Slurm from an `optional` plugin would start the program without its environment. Where every task
// finds the error, the launcher's rank 0 tells it; a task that cannot say which it is speaks too.
[[noreturn]] void end_all_tasks(const EnvMap& environment, const Error& error) {
  if (environment.get("SLURM_PROCID").value_or("0") == "0") tell_task(error.message);
  _exit(EXIT_FAILURE);
}

// Where only this task, or those of this node, may have found it: the first of them that knows tells it, unless another node
// does, and ends the step.
[[noreturn]] void end_task(spank_t spank, const Error& error) {
  // srun drops what a task says if the step ends while other nodes are still being launched.
  constexpr int kForwardingMs = 500;
  if (!error.message.empty()) {
    if (board.may_speak()) tell_task(error.message);
    poll(nullptr, 0, kForwardingMs);
  }
  end_step(spank);
  _exit(EXIT_FAILURE);
}

[[noreturn]] void stop_after(const std::string& table) {
  dprintf(STDOUT_FILENO, "%s", table.c_str());
  _exit(EXIT_SUCCESS);
}

// For task_exit.
void leave_record(spank_t spank, const StepPlan& plan, const EnvMap& environment, const TaskEnvironment& task) {
  int local_task = 0;
  if (spank_get_item(spank, S_TASK_ID, &local_task) != ESPANK_SUCCESS) return;
  TaskRecord* record = board.record_of(local_task);
  if (record == nullptr) return;
  std::string error_file(environment.get("TORCHELASTIC_ERROR_FILE").value_or(""));
  for (const auto& [name, value] : task.variables) {
    if (name == "TORCHELASTIC_ERROR_FILE") error_file = value;
  }
  write_record(*record, environment, plan.env.layout.rank, error_file);
}

void tell_lines(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    slurm_error("torch-env: %.*s", static_cast<int>(end), text.data());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Of each node only the first failure is told: what follows is mostly its consequence.
void tell_first_failure(spank_t spank) {
  static bool told = false;
  int local_task = 0, status = 0;
  uid_t user = 0;
  gid_t group = 0;
  if (told || spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS || status == 0) return;
  if (spank_get_item(spank, S_TASK_ID, &local_task) != ESPANK_SUCCESS) return;
  if (spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_GID, &group) != ESPANK_SUCCESS) return;
  const TaskRecord* record = board.record_of(local_task);
  if (record == nullptr || !record->written) return;
  told = true;
  const std::string text = tell_failure(*record, user, group, status);
  if (!text.empty()) tell_lines("first to fail on this node: " + text);
}

// What is wrong with the environment each task finds out for itself.
void ask_for_placement(spank_t spank, const EnvMap& environment) {
  uint32_t job = 0, step = 0, tasks = 0;
  const auto world_size = environment.integer("SLURM_STEP_NUM_TASKS", 1, INT32_MAX);
  if (!world_size || !*world_size || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS) {
    return;
  }
  const StepShape shape{.job_id = job, .world_size = static_cast<int>(**world_size), .component_tasks = static_cast<int>(tasks)};
  if (environment_tells_placement(environment, shape)) return;
  const auto ask = [step](uint32_t job_id, auto number) { return ask_component(job_id, step, number); };
  node_of_rank = placement_of_step(environment, shape, ask);
}

void export_torch_env(spank_t spank) {
  const EnvMap environment = job_environment(spank);
  const auto options = settings.resolve(environment.get("TORCH_ENV"));
  if (!options) end_all_tasks(environment, options.error());
  if (!*options || !is_rank_step(spank)) return;

  auto facts = read_slurm(environment);
  if (!facts) end_all_tasks(environment, facts.error());
  if (!node_of_rank) end_task(spank, node_of_rank.error());
  facts->node_of_rank = *node_of_rank;
  auto plan = plan_step(std::move(*facts), environment, **options);
  if (!plan) end_all_tasks(environment, plan.error());
  if (const auto settled = settle_address(*plan, environment, **options); !settled) end_task(spank, settled.error());
  if ((*options)->check || (*options)->explain) {
    const auto table = meet_nodes(*plan, environment, **options);
    if (!table) end_task(spank, table.error());
    if ((*options)->explain) stop_after(*table);
  }
  const bool agent_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" && !(*options)->override_user;
  auto port = plan->env.layout.rank == 0 && !agent_serves ? reserve_store_port(plan->master) : Socket();
  if (!port) end_task(spank, port.error());
  const auto task = task_environment(*plan, environment, **options, *port);
  if (!task) end_task(spank, task.error());
  for (const auto& [name, value] : task->variables) {
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS) {
      end_task(spank, {"Slurm refused to set " + name});
    }
  }
  for (const auto& note : task->notes) tell_task(note);
  leave_record(spank, *plan, environment, *task);
  (void)port->release();  // the program's from here on
}

}  // namespace
}  // namespace torchbridge

using namespace torchbridge;

extern "C" int slurm_spank_init(spank_t spank, int argc, char** argv) {
  return guarded("init", [&]() -> int {
    if (!submits_jobs(spank_context()) && spank_context() != S_CTX_REMOTE) return ESPANK_SUCCESS;
    settings.set_site_defaults(joined(argc, argv));
    return register_option(spank);
  });
}

extern "C" int slurm_spank_init_post_opt(spank_t, int, char**) {
  return guarded("init_post_opt", [&]() -> int {
    if (!submits_jobs(spank_context())) return ESPANK_SUCCESS;
    const auto options = settings.resolve(exported_list());
    if (!options) {
      complain(options.error().message);
      exit(EXIT_FAILURE);  // of an `optional` plugin Slurm would ignore the error, and submit the job
    }
    if (!*options || spank_context() != S_CTX_LOCAL || desk) return ESPANK_SUCCESS;
    auto opened = FailureDesk::open();
    if (!opened) return ESPANK_SUCCESS;  // the nodes tell their failures in the log then
    desk = std::move(*opened);
    setenv(DeskAddress::kVariable, desk->variable().c_str(), 1);
    return ESPANK_SUCCESS;
  });
}

// With the user's rights, before the tasks are forked.
extern "C" int slurm_spank_user_init(spank_t spank, int, char**) {
  return guarded("user_init", [&]() -> int {
    const EnvMap environment = job_environment(spank);
    const auto options = settings.resolve(environment.get("TORCH_ENV"));
    std::uint32_t tasks = 0;
    if (!options || !*options || !is_rank_step(spank)) return ESPANK_SUCCESS;
    if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) == ESPANK_SUCCESS) board = TaskBoard(tasks);
    if ((*options)->ranks != RankRule::kBlock) ask_for_placement(spank, environment);
    return ESPANK_SUCCESS;
  });
}

extern "C" int slurm_spank_task_init(spank_t spank, int, char**) {
  const int outcome = guarded("task_init", [&] { return export_torch_env(spank), ESPANK_SUCCESS; });
  if (outcome != ESPANK_SUCCESS) _exit(EXIT_FAILURE);
  return outcome;
}

extern "C" int slurm_spank_task_exit(spank_t spank, int, char**) {
  return guarded("task_exit", [&] { return tell_first_failure(spank), ESPANK_SUCCESS; });
}

extern "C" int slurm_spank_exit(spank_t, int, char**) {
  return guarded("exit", [&]() -> int {
    if (const auto report = desk ? desk->first_report() : std::nullopt) tell_lines("first to fail: " + *report);
    desk.reset();
    return ESPANK_SUCCESS;
  });
}
