// The SPANK hooks of `srun --torch-env[=LIST]`: each a thin wrapper that lets no exception into Slurm.
#include <poll.h>
#include <slurm/slurm.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <torchbridge/core/launchers/slurm.h>
#include <torchbridge/net/address.h>
#include <torchbridge/task/roll.h>
#include <torchbridge/task/store_port.h>
#include <torchbridge/task/task_environment.h>

#include "handshake.h"
#include "settings.h"

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
__attribute__((weak)) void __freeres();
}  // namespace __gnu_cxx

// libstdc++, of which the plugin has a copy of its own, would leave 70 kB behind at each unloading.
__attribute__((destructor)) static void free_emergency_pool() {
  if (__gnu_cxx::__freeres != nullptr) __gnu_cxx::__freeres();
}

namespace torchbridge {
namespace {

Settings settings;

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

// "TORCH_ENV" as the user exported it.
std::optional<std::string_view> exported_list() {
  const char* value = getenv("TORCH_ENV");
  return value == nullptr ? std::nullopt : std::optional<std::string_view>(value);
}

// Called with the list of --torch-env, in srun before the job is submitted and again on each node: there as root, so it only
// keeps the text, which the tasks parse with the user's rights.
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

// proctrack/linuxproc spares whatever is called slurmstepd, also when the step is to end.
void let_slurm_end_us() { prctl(PR_SET_NAME, "torch_env"); }

// Where a whole node is at fault: its first task tells it, and ends the step. Rank 0 goes first where all nodes are alike.
[[noreturn]] void end_step_of_wrong_node(spank_t spank, const EnvMap& environment, const Error& error) {
  constexpr int kTurnMs = 1000, kForwardingMs = 500;
  let_slurm_end_us();
  if (environment.get("SLURM_PROCID") != "0") poll(nullptr, 0, kTurnMs);
  if (environment.get("SLURM_LOCALID").value_or("0") != "0") poll(nullptr, 0, 2 * kTurnMs);
  tell_task(error.message);
  poll(nullptr, 0, kForwardingMs);
  end_step(spank);
  _exit(EXIT_FAILURE);
}

// Where only this task, or those of this node, may have found it: unless somebody has told it, the first of them does, and
// ends the step. The others give it the time to; whoever is still there then was alone with its trouble.
[[noreturn]] void end_task(spank_t spank, const StepPlan& plan, const Error& error) {
  constexpr int kPatienceMs = 2000;
  // srun drops what a task says if the step ends while other nodes are still being launched.
  constexpr int kForwardingMs = 500;
  if (plan.env.layout.local_rank != 0) poll(nullptr, 0, kPatienceMs);
  if (!error.message.empty()) {
    tell_task(error.message);
    poll(nullptr, 0, kForwardingMs);
  }
  end_step(spank);
  _exit(EXIT_FAILURE);
}

[[noreturn]] void stop_after(const std::string& table) {
  dprintf(STDOUT_FILENO, "%s", table.c_str());
  _exit(EXIT_SUCCESS);
}

EnvMap job_environment(spank_t spank) {
  char** variables = nullptr;
  if (spank_get_item(spank, S_JOB_ENV, &variables) != ESPANK_SUCCESS) variables = nullptr;
  return EnvMap::from(variables);
}

void meet(spank_t spank, const StepPlan& plan, const EnvMap& environment, const Options& options) {
  const auto table = meet_nodes(plan, environment, options, " (or is torch_env.so missing in its plugstack.conf?)");
  if (!table) end_task(spank, plan, table.error());
  if (options.explain) stop_after(*table);
}

void export_torch_env(spank_t spank) {
  const EnvMap given = job_environment(spank);
  const Announcement announcement = announcement_in(given);
  for (const auto& name : announcement.names) spank_unsetenv(spank, name.c_str());
  const EnvMap environment = without(announcement, given);
  if (!is_rank_step(spank)) return;
  if (const auto same = same_version(announcement, host_name()); !same) end_step_of_wrong_node(spank, environment, same.error());
  const auto options = settings.resolve(environment.get("TORCH_ENV"));
  if (!options) end_step_of_wrong_node(spank, environment, {options.error().message + " (on " + host_name() + ")"});
  if (!*options && announcement.version.empty()) return;
  if (!*options) {
    end_step_of_wrong_node(spank, environment, {"srun asks for torchrun's environment, but neither --torch-env nor TORCH_ENV reaches " +
                                                host_name() + ": give srun the option, or --export=ALL"});
  }
  let_slurm_end_us();
  if (!first_time_in_this_process()) {
    if (environment.get("SLURM_LOCALID") != "0") return;
    return tell_task("plugstack.conf on " + host_name() + " loads the plugin twice: remove one of the lines");
  }

  auto facts = read_slurm(environment);
  if (!facts) end_all_tasks(environment, facts.error());
  const auto plan = plan_step(std::move(*facts), environment, **options);
  if (!plan) end_all_tasks(environment, plan.error());
  const bool agent_serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" && !(*options)->override_user;
  auto port = plan->env.layout.rank == 0 && !agent_serves ? reserve_store_port(plan->master) : Socket();
  if (!port) end_task(spank, *plan, port.error());
  const bool alone = plan->env.layout.node_count == 1 || agent_serves;
  if ((*options)->explain || (*options)->check.value_or(alone ? 0 : 1) != 0) meet(spank, *plan, environment, **options);
  const auto task = task_environment(*plan, environment, **options, *port);
  if (!task) end_task(spank, *plan, task.error());
  for (const auto& [name, value] : task->variables) {
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS) {
      end_task(spank, *plan, {"Slurm refused to set " + name});
    }
  }
  for (const auto& note : task->notes) tell_task(note);
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
    if (options && *options && spank_context() == S_CTX_LOCAL) announce_plugin((*options)->override_user);
    if (options) return ESPANK_SUCCESS;
    complain(options.error().message);
    exit(EXIT_FAILURE);  // of an `optional` plugin Slurm would ignore the error, and submit the job
  });
}

extern "C" int slurm_spank_task_init(spank_t spank, int, char**) {
  const int outcome = guarded("task_init", [&] { return export_torch_env(spank), ESPANK_SUCCESS; });
  if (outcome == ESPANK_SUCCESS) return outcome;
  constexpr int kForwardingMs = 500;
  poll(nullptr, 0, kForwardingMs);
  end_step(spank);
  _exit(EXIT_FAILURE);
}
