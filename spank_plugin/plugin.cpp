// The SPANK hooks of `srun --torch-env[=LIST]`: each a thin wrapper that lets no exception into
// Slurm.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <utility>

#include <slurm/slurm.h>

#include "bridge/core/agent_command.h"
#include "bridge/core/srun_options.h"
#include "bridge/core/step_record.h"
#include "bridge/core/torch_env.h"
#include "bridge/host/text_file.h"
#include "bridge/net/random_token.h"
#include "bridge/step/failure.h"
#include "spank_plugin/as_user.h"
#include "spank_plugin/controller.h"
#include "spank_plugin/failure_listener.h"
#include "spank_plugin/log.h"
#include "spank_plugin/spank.h"
#include "spank_plugin/step.h"
#include "spank_plugin/step_abort.h"
#include "spank_plugin/step_answers.h"
#include "spank_plugin/step_request.h"
#include "spank_plugin/task_init.h"
#include "spank_plugin/task_report.h"

// How long tasks may save beside one that failed, where another one was asked to end. Tests build a
// plugin with less.
#ifndef TORCH_ENV_SAVING_SECONDS
#define TORCH_ENV_SAVING_SECONDS 300
#endif

// Resolved at run time from srun; has this type in all releases from 20.11 on. Null: SrunPortRange
// is unknown.
extern "C" __attribute__((weak)) std::uint16_t* slurm_get_srun_port_range(void);

// In srun: not 0 while a debugger of parallel programs, such as TotalView or DDT, has attached to
// it. Slurm then hands the tasks over to the debugger stopped.
extern "C" __attribute__((weak)) volatile int MPIR_being_debugged;

// A C++ constant has internal linkage unless it is declared extern.
#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
}
#pragma GCC visibility pop
SPANK_PLUGIN(torch_env, 1)

// Replaces libstdc++'s handler, which prints the exception's name by a demangler of 50 kB, in every
// srun.
namespace __gnu_cxx {
void __verbose_terminate_handler() { abort(); }
__attribute__((weak)) void __freeres();
}  // namespace __gnu_cxx

// The plugin has a copy of libstdc++ of its own, which would leak 70 kB at each unloading.
__attribute__((destructor)) static void free_emergency_pool() {
  if (__gnu_cxx::__freeres != nullptr) __gnu_cxx::__freeres();
}

namespace torchbridge {
namespace {

NodeState node;  // in slurmstepd and its tasks; in srun, sbatch and salloc only the lists

// In srun, where the plugin is requested.
struct LaunchState {
  LaunchOptions options;
  // Null where it cannot listen: the nodes then report in their logs.
  std::unique_ptr<FailureListener> listener;
};
LaunchState* launch = nullptr;  // not destroyed by exit(), which children that srun forks call too

template <class Body>
int guarded(const char* hook, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    slurm_error("torch-env: %s: %s", hook, error.what());
  }
  return ESPANK_ERROR;
}

std::string joined(int argc, char** argv) {
  std::string list;
  for (int i = 0; i < argc; ++i) list += (i == 0 ? "" : ",") + std::string(argv[i]);
  return list;
}

bool submits_jobs(spank_context_t context) {
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

// On a node. Allocates no memory, so that nothing can fail in a step that does not request the
// plugin.
bool may_be_requested(spank_t spank) {
  char unused[1];
  const auto has = [&](const char* name) {
    return spank_getenv(spank, name, unused, 1) != ESPANK_ENV_NOEXIST;
  };
  return node.lists.command_line || has(kStepRequestVariable) || has(kOptionsVariable) ||
         has(kCarriedTokenVariable);
}

// Slurm calls it with the list of --torch-env, in srun before the job is submitted and again on
// each node, there as root. It only stores the text: the tasks parse it with the user's rights;
// srun, sbatch and salloc do in init_post_opt.
int store_option_text(int, const char* list, int) {
  // Steps inside `salloc --torch-env` or sbatch inherit the option; Slurm 22.05 then writes its
  // missing list as "(null)".
  const std::string_view given = list == nullptr || std::string_view(list) == "(null)" ? "" : list;
  return guarded("option", [&] { return node.lists.command_line = given, ESPANK_SUCCESS; });
}

int register_option(spank_t spank) {
  static char name[] = "torch-env";
  static char argument[] = "[LIST]";
  static char usage[] =
      "set torchrun's environment for each task; LIST is KEY=VALUE,... (torchbridge's "
      "docs/use/slurm.md)";
  // 2: the argument is optional.
  static spank_option option = {name, argument, usage, 2, 0, store_option_text};
  return spank_option_register(spank, &option);
}

// In srun, whose environment becomes that of the tasks. Called before Slurm copies it for each
// component.
void prepare_step(const MergedOptions& merged) {
  const std::uint16_t* range =
      slurm_get_srun_port_range != nullptr ? slurm_get_srun_port_range() : nullptr;
  const std::string secret = random_token();  // empty: the kernel's generator is not initialised
  const auto [low, high] =
      range != nullptr ? std::pair<int, int>(range[0], range[1]) : std::pair(0, 0);
  auto listener = secret.empty() ? nullptr : FailureListener::open(report_key(secret), low, high);
  set_step_request(merged, secret, listener ? listener->port() : 0);
  launch = new LaunchState{merged.options, std::move(listener)};
}

// In srun. The words of its command line; empty where they cannot be read, or have more than 64
// KiB.
std::vector<std::string> command_line() {
  const auto text = read_text("/proc/self/cmdline");
  std::vector<std::string> words;
  if (!text || !*text) return words;
  for (std::string_view rest = **text; !rest.empty();) words.emplace_back(take_until(rest, '\0'));
  return words;
}

// In srun, before the step is launched.
void start_listener(spank_t spank, const StepIds& ids) {
  StepActions actions{.log = log_lines,
                      .end_step = [ids] { kill_step(ids); },
                      .time_after_failure = {},
                      .while_saving = std::chrono::seconds(TORCH_ENV_SAVING_SECONDS),
                      .state = [ids] { return state_of_step(ids); }};
  const bool is_debugged = &MPIR_being_debugged != nullptr && MPIR_being_debugged != 0;
  if (launch->options.on_failure && !is_debugged &&
      !has_decided_on_failures(command_line(), program_of(spank), EnvMap::from(environ)))
    actions.time_after_failure = std::chrono::seconds(*launch->options.on_failure);
  launch->listener->start(std::move(actions));
}

// In srun, after the step is created and before it is launched. In a heterogeneous step only the
// tasks of one component get the record.
void export_step_record(spank_t spank) {
  const EnvMap environment = job_environment(spank);
  const auto world_size = environment.required_integer("SLURM_NTASKS", 1, INT32_MAX);
  if (!world_size) return;
  const auto record =
      record_of_step(spank, environment, static_cast<int>(*world_size), launch->options, true);
  if (record && !record->empty())
    setenv(kStepRecordVariable, record->c_str(), 1);  // else the nodes request it
}

// In slurmstepd when tasks have ended. All of it together takes ten seconds at most, also where a
// process of the user stops each child: what does not fit is left undone.
bool run_at_end(const UserIds& user, std::chrono::milliseconds limit,
                const std::function<bool()>& act) {
  if (node.time_at_end <= std::chrono::milliseconds::zero()) return false;
  const auto start = std::chrono::steady_clock::now();
  const bool result = run_as_user(user, std::min(limit, node.time_at_end), act);
  node.time_at_end -= std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  return result;
}

// Others may still be saving before they end in the same way, and get the time for it beside a
// failure.
void handle_requeue(spank_t spank, const UserIds& user) {
  static bool has_reported = false;
  if (std::exchange(has_reported, true) || node.table.is_empty()) return;
  run_at_end(user, kAbortLimit, [&] {
    return send_report(listener_in(job_environment(spank)), {StepReport::Kind::kTaskAsksForRequeue,
                                                             std::chrono::system_clock::now(), ""});
  });
}

// Reports only the first reason or failure of each node: later ones are mostly consequences, but
// for that of the task that wrote its error file first. A failure beside a task that was asked to
// end is reported too: else the step would run on without a limit. All that tasks have written is
// read by a child with the user's rights.
void handle_task_exit(spank_t spank) {
  static bool has_failed = false, has_ended = false, has_cause = false;
  const int status = item<int>(spank, S_TASK_EXIT_STATUS).value_or(0);
  const auto user = user_of(spank);
  const auto local_task = local_task_of(spank);
  if (has_cause || status == 0 || !user || !local_task) return;
  const bool had_failed = has_failed, has_reason = node.table.has_reason();
  if (wants_requeue(status)) return had_failed ? void() : handle_requeue(spank, *user);
  if (!has_reason && !node.table.has_record(*local_task)) return;
  const bool is_asked = is_asked_to_end(status) && !has_reason;
  const bool is_first = !std::exchange(is_asked ? has_ended : has_failed, true) && !had_failed;
  const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (!is_first && (is_asked || is_killed || has_reason)) return;
  constexpr int kLooks = 8;  // each is a child, and all share ten seconds
  static int looks = 0;
  if (!is_first && ++looks > kLooks) return;
  has_cause = run_at_end(*user, kAbortLimit, [&] {
    if (const std::string reason = node.table.reason(); !reason.empty())
      return abort_step(spank, reason), true;
    const auto record = node.table.record_of(*local_task);
    if (!record) return false;
    const FailureListenerAddress listener = listener_in(job_environment(spank));
    const FailureReport report =
        report_failure(node.table, *record, listener, status, program_of(spank), is_first);
    return log_lines(report.text), report.is_cause;
  });
}

// REQUIRES: glibc, where exit() in a handler goes on with the handlers that are left.
void replace_zero(int status, void*) {
  if (status == EXIT_SUCCESS) exit(EXIT_FAILURE);
}

// Slurm unloads the plugin before srun ends.
bool keep_loaded() {
  Dl_info plugin;
  return dladdr(reinterpret_cast<const void*>(&replace_zero), &plugin) != 0 &&
         dlopen(plugin.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
}

// In srun, when its plugins end. If srun ends with 0 nevertheless, it ends with 1 instead: srun of
// Slurm 22.05 ends with 0 where the step is cancelled and no task's exit code arrives ("Timed out
// waiting for job step to complete").
void fail_if_srun_ends_with_zero() {
  if (keep_loaded()) on_exit(replace_zero, nullptr);
}

// In slurmstepd, when all tasks of this node have ended.
void handle_step_end(spank_t spank) {
  constexpr std::chrono::seconds kLimit{3};
  const auto user = user_of(spank);
  if (node.table.is_empty() || !user) return;
  run_at_end(*user, kLimit, [&] { return remove_error_files(node.table), true; });
}

}  // namespace
}  // namespace torchbridge

using namespace torchbridge;

extern "C" int slurm_spank_init(spank_t spank, int argc, char** argv) {
  return guarded("init", [&]() -> int {
    if (!submits_jobs(spank_context()) && spank_context() != S_CTX_REMOTE) return ESPANK_SUCCESS;
    if (submits_jobs(spank_context())) clear_outer_step();
    node.lists.site = joined(argc, argv);
    return register_option(spank);
  });
}

// On a node as root, before any process is forked: makes the memory that the tasks of a step share,
// and reads nothing.
static void prepare_node(spank_t spank) {
  const auto tasks = item<std::uint32_t>(spank, S_JOB_LOCAL_TASK_COUNT);
  if (tasks && may_be_requested(spank) && is_normal_step(spank))
    node.table = SharedTaskTable(*tasks);
}

extern "C" int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  return guarded("init_post_opt", [&]() -> int {
    if (spank_context() == S_CTX_REMOTE) return prepare_node(spank), ESPANK_SUCCESS;
    if (!submits_jobs(spank_context()) || !(node.lists.command_line || getenv(kOptionsVariable)))
      return ESPANK_SUCCESS;
    auto merged = merged_options(node.lists, EnvMap::from(environ));
    if (!merged) {
      log_lines(merged.error().message);
      exit(EXIT_FAILURE);  // Slurm ignores the error of an `optional` plugin, and would submit the
                           // job
    }
    if (!*merged) return ESPANK_SUCCESS;
    if (spank_context() == S_CTX_LOCAL && !has_step_request()) prepare_step(**merged);
    // One for all steps of the job, whose agents may belong to one run.
    const std::string token = spank_context() == S_CTX_ALLOCATOR ? random_token() : "";
    if (!token.empty()) setenv(kTokenVariable, token.c_str(), 0);
    carry_token();
    return ESPANK_SUCCESS;
  });
}

// In srun, but not in `srun --async`: after the step is created and before it is launched.
extern "C" int slurm_spank_local_user_init(spank_t spank, int, char**) {
  guarded("local_user_init", [&]() -> int {
    const auto ids = launch ? ids_of(spank) : std::nullopt;
    if (!ids) return ESPANK_SUCCESS;
    if (launch->listener) start_listener(spank, *ids);
    export_step_record(spank);
    return ESPANK_SUCCESS;
  });
  return ESPANK_SUCCESS;  // an error would end the step, which can run without listener and record
}

extern "C" int slurm_spank_task_post_fork(spank_t spank, int, char**) {
  guarded("task_post_fork", [&] { return ask_for_tasks(spank, node), ESPANK_SUCCESS; });
  return ESPANK_SUCCESS;  // Slurm would end the step without a task that says why
}

extern "C" int slurm_spank_task_init(spank_t spank, int, char**) {
  if (!may_be_requested(spank)) return ESPANK_SUCCESS;
  try {
    export_torch_env(spank, node);
    return ESPANK_SUCCESS;
  } catch (const std::exception& error) {
    StepAborter(node.table, true).abort(error.what());
  }
}

extern "C" int slurm_spank_task_exit(spank_t spank, int, char**) {
  return guarded("task_exit", [&] { return handle_task_exit(spank), ESPANK_SUCCESS; });
}

extern "C" int slurm_spank_exit(spank_t spank, int, char**) {
  return guarded("exit", [&]() -> int {
    if (spank_context() == S_CTX_REMOTE) return handle_step_end(spank), ESPANK_SUCCESS;
    if (launch && launch->listener) {
      if (const auto report = launch->listener->stop()) log_lines(*report);
      if (launch->listener->has_reports()) fail_if_srun_ends_with_zero();
    }
    delete std::exchange(launch, nullptr);
    return ESPANK_SUCCESS;
  });
}
