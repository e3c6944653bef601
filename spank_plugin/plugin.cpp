// The SPANK hooks of `srun --torch-env[=LIST]`: each a thin wrapper that lets no exception into Slurm.
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include <slurm/slurm.h>

#include "bridge/core/step_record.h"
#include "bridge/core/torch_env.h"
#include "spank_plugin/as_user.h"
#include "spank_plugin/controller.h"
#include "spank_plugin/failure_listener.h"
#include "spank_plugin/log.h"
#include "spank_plugin/spank.h"
#include "spank_plugin/stamp.h"
#include "spank_plugin/step.h"
#include "spank_plugin/step_ending.h"
#include "spank_plugin/task_init.h"
#include "spank_plugin/task_report.h"

// Of Slurm's own processes, from its newest release back to 20.11 with this type; null: SrunPortRange is not known.
extern "C" __attribute__((weak)) std::uint16_t* slurm_get_srun_port_range(void);

// A constant in C++ is not visible outside unless it is declared so.
#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
}
#pragma GCC visibility pop
SPANK_PLUGIN(torch_env, 1)

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

NodeState node;  // in slurmstepd and its tasks; in srun, sbatch and salloc only the lists

// In srun, where somebody asks.
struct LaunchState {
  LaunchOptions options;
  std::unique_ptr<FailureListener> reporter;  // null where it cannot listen: the nodes then report in the log
};
LaunchState* launch = nullptr;  // left at exit(), which children that srun forks call too

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

bool submits_jobs(spank_context_t context) { return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR; }

// On a node. Takes no memory: where nobody asks, nothing can fail.
bool may_be_asked(spank_t spank) {
  char none[1];
  const auto has = [&](const char* name) { return spank_getenv(spank, name, none, 1) != ESPANK_ENV_NOEXIST; };
  return node.lists.command_line || has(kStampVariable) || has(kOptionsVariable);
}

// Called with the list of --torch-env, in srun before the job is submitted and again on each node: there as root, so it
// only keeps the text, which the tasks parse with the user's rights. srun, sbatch and salloc parse it in init_post_opt.
int take_option(int, const char* list, int) {
  // Steps inside `salloc --torch-env` or sbatch inherit the option; Slurm 22.05 then writes its missing list as
  // "(null)".
  const std::string_view given = list == nullptr || std::string_view(list) == "(null)" ? "" : list;
  return guarded("option", [&] { return node.lists.command_line = given, ESPANK_SUCCESS; });
}

int register_option(spank_t spank) {
  static char name[] = "torch-env";
  static char argument[] = "[LIST]";
  static char usage[] = "set torchrun's environment for each task; LIST is KEY=VALUE,... (see torch-env's manual)";
  static spank_option option = {name, argument, usage, 2, 0, take_option};  // 2: the argument is optional
  return spank_option_register(spank, &option);
}

// In srun, whose environment is the tasks': of all components, for they are copied later.
void prepare_step(const Asked& asked) {
  const std::uint16_t* range = slurm_get_srun_port_range != nullptr ? slurm_get_srun_port_range() : nullptr;
  launch = new LaunchState{asked.options,
                           range != nullptr ? FailureListener::open(range[0], range[1]) : FailureListener::open()};
  set_stamp(asked, launch->reporter.get());
}

// In srun, when the step exists and has not been launched. Of a heterogeneous step the tasks of one component get the
// record.
void tell_placement(spank_t spank) {
  const EnvMap environment = job_environment(spank);
  const auto world_size = environment.required_integer("SLURM_NTASKS", 1, INT32_MAX);
  if (!world_size) return;
  const auto record = record_of_step(spank, environment, static_cast<int>(*world_size), launch->options, true);
  if (record && !record->empty()) setenv(kStepRecordVariable, record->c_str(), 1);  // else the nodes ask
}

// With EX_TEMPFAIL (sysexits.h): it stopped in order, and is to be started again.
bool wants_to_go_on(int wait_status) { return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == EX_TEMPFAIL; }

// Of each node only the first reason or failure counts: what follows is mostly its consequence.
void heed_end_of_task(spank_t spank) {
  static bool heeded = false;
  const int status = item<int>(spank, S_TASK_EXIT_STATUS).value_or(0);
  const auto user = item<uid_t>(spank, S_JOB_UID);
  const auto group = item<gid_t>(spank, S_JOB_GID);
  const TaskRecord* record = record_of_task(spank, node.table);
  if (heeded || status == 0 || !user || !group || record == nullptr || wants_to_go_on(status)) return;
  if (node.table.reason() == nullptr && !record->written) return;
  heeded = true;
  if (const char* reason = node.table.reason()) return end_step(spank, {*user, *group}, reason);
  run_as_user({*user, *group}, [&] {
    return tell_log(tell_failure(node.table, *record, reporter_in(job_environment(spank)), status)), true;
  });
}

}  // namespace
}  // namespace torchbridge

using namespace torchbridge;

extern "C" int slurm_spank_init(spank_t spank, int argc, char** argv) {
  return guarded("init", [&]() -> int {
    if (!submits_jobs(spank_context()) && spank_context() != S_CTX_REMOTE) return ESPANK_SUCCESS;
    if (submits_jobs(spank_context())) clear_stamp();
    node.lists.site = joined(argc, argv);
    return register_option(spank);
  });
}

extern "C" int slurm_spank_init_post_opt(spank_t, int, char**) {
  return guarded("init_post_opt", [&]() -> int {
    if (!submits_jobs(spank_context()) || !(node.lists.command_line || getenv(kOptionsVariable))) return ESPANK_SUCCESS;
    auto asked = asked_by(node.lists, EnvMap::from(environ));
    if (!asked) {
      tell_log(asked.error().message);
      exit(EXIT_FAILURE);  // of an `optional` plugin Slurm would ignore the error, and submit the job
    }
    if (*asked && spank_context() == S_CTX_LOCAL && !has_stamp()) prepare_step(**asked);
    return ESPANK_SUCCESS;
  });
}

// In srun, not in `srun --async`: when the step exists and has not been launched.
extern "C" int slurm_spank_local_user_init(spank_t spank, int, char**) {
  guarded("local_user_init", [&]() -> int {
    const auto ids = launch ? ids_of(spank) : std::nullopt;
    if (!ids) return ESPANK_SUCCESS;
    if (launch->reporter) launch->reporter->start(tell_log, [ids] { kill_step(*ids); });
    tell_placement(spank);
    return ESPANK_SUCCESS;
  });
  return ESPANK_SUCCESS;  // an error would end a step that can do without
}

// With the user's rights, before the tasks are forked.
extern "C" int slurm_spank_user_init(spank_t spank, int, char**) {
  return guarded("user_init", [&]() -> int {
    if (!may_be_asked(spank) || !is_rank_step(spank)) return ESPANK_SUCCESS;
    const auto options = asked_options(node.lists, job_environment(spank));
    if (options && !*options) return ESPANK_SUCCESS;  // an error each task finds out for itself
    if (const auto tasks = item<std::uint32_t>(spank, S_JOB_LOCAL_TASK_COUNT)) node.table = SharedTaskTable(*tasks);
    return ESPANK_SUCCESS;
  });
}

extern "C" int slurm_spank_task_init(spank_t spank, int, char**) {
  if (!may_be_asked(spank)) return ESPANK_SUCCESS;
  try {
    export_torch_env(spank, node);
    return ESPANK_SUCCESS;
  } catch (const std::exception& error) {
    StepEnding(spank, node.table, true).because(error.what());
  }
}

extern "C" int slurm_spank_task_exit(spank_t spank, int, char**) {
  return guarded("task_exit", [&] { return heed_end_of_task(spank), ESPANK_SUCCESS; });
}

extern "C" int slurm_spank_exit(spank_t, int, char**) {
  return guarded("exit", [&]() -> int {
    if (const auto report = launch && launch->reporter ? launch->reporter->stop() : std::nullopt) tell_log(*report);
    delete std::exchange(launch, nullptr);
    return ESPANK_SUCCESS;
  });
}
