// The SPANK hooks of `srun --torch-env[=LIST]`: each a thin wrapper that lets no exception into Slurm.
#include <slurm/slurm.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "failure_desk.h"
#include "handshake.h"
#include "settings.h"
#include "shared_placement.h"
#include "spank.h"
#include "step_ending.h"
#include "task_init.h"
#include "task_report.h"

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

NodeState node;                   // in slurmstepd and its tasks; in srun, sbatch and salloc only the settings
std::optional<FailureDesk> desk;  // in srun

// To srun's, sbatch's and salloc's log, which goes to the user's terminal.
void complain(const std::string& message) { slurm_error("torch-env: %s", message.c_str()); }

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

// The list that the user exported.
std::optional<std::string_view> exported_list() {
  const char* value = getenv(kOptionsVariable);
  return value == nullptr ? std::nullopt : std::optional<std::string_view>(value);
}

// Called with the list of --torch-env, in srun before the job is submitted and again on each node: there as root, so it only
// keeps the text, which the tasks parse with the user's rights. Other lists than this one are checked in init_post_opt.
int take_option(int, const char* list, int remote) {
  return guarded("option", [&]() -> int {
    // Steps inside `salloc --torch-env` or sbatch inherit the option; Slurm 22.05 then writes its missing list as "(null)".
    const std::string_view given = list == nullptr || std::string_view(list) == "(null)" ? "" : list;
    node.settings.set_command_line(given);
    if (remote != 0) return ESPANK_SUCCESS;
    const auto own = Settings::check_command_line(given);
    if (own) return ESPANK_SUCCESS;
    complain(own.error().message);
    return ESPANK_BAD_ARG;  // Slurm adds that the argument is invalid
  });
}

int register_option(spank_t spank) {
  static char name[] = "torch-env";
  static char argument[] = "[LIST]";
  static char usage[] = "set torchrun's environment for each task; LIST is KEY=VALUE,... (see torch-env's manual)";
  static spank_option option = {name, argument, usage, 2, 0, take_option};  // 2: the argument is optional
  return spank_option_register(spank, &option);
}

// In srun, whose environment is the tasks'.
void prepare_step(const Options& options) {
  announce_plugin(options.override_user);
  if (desk) return;
  auto opened = FailureDesk::open();
  if (!opened) return;  // the nodes tell their failures in the log then
  desk = std::move(*opened);
  setenv(DeskAddress::kVariable, desk->variable().c_str(), 1);
}

void tell_lines(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    slurm_error("torch-env: %.*s", static_cast<int>(end), text.data());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// With EX_TEMPFAIL (sysexits.h): it stopped in order, and is to be started again.
bool wants_to_go_on(int wait_status) { return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == EX_TEMPFAIL; }

// Of each node only the first failure counts: what follows is mostly its consequence.
void heed_first_failure(spank_t spank) {
  static bool told = false, ended = false;
  int local_task = 0, status = 0;
  uid_t user = 0;
  gid_t group = 0;
  if (spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS) return;
  if (status == 0 || wants_to_go_on(status)) return;
  if (spank_get_item(spank, S_TASK_ID, &local_task) != ESPANK_SUCCESS) return;
  const TaskRecord* record = node.board.record_of(local_task);
  if (record == nullptr) return;
  if (record->refused && !std::exchange(ended, true)) end_step_of(spank);
  if (!record->written || std::exchange(told, true)) return;
  if (spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_GID, &group) != ESPANK_SUCCESS) return;
  tell_lines(tell_failure(*record, user, group, status));
}

}  // namespace
}  // namespace torchbridge

using namespace torchbridge;

extern "C" int slurm_spank_init(spank_t spank, int argc, char** argv) {
  return guarded("init", [&]() -> int {
    if (!submits_jobs(spank_context()) && spank_context() != S_CTX_REMOTE) return ESPANK_SUCCESS;
    node.settings.set_site_defaults(joined(argc, argv));
    return register_option(spank);
  });
}

extern "C" int slurm_spank_init_post_opt(spank_t, int, char**) {
  return guarded("init_post_opt", [&]() -> int {
    if (!submits_jobs(spank_context())) return ESPANK_SUCCESS;
    const auto options = node.settings.resolve(exported_list());
    if (!options) {
      complain(options.error().message);
      exit(EXIT_FAILURE);  // of an `optional` plugin Slurm would ignore the error, and submit the job
    }
    if (*options && spank_context() == S_CTX_LOCAL) prepare_step(**options);
    return ESPANK_SUCCESS;
  });
}

// With the user's rights, before the tasks are forked.
extern "C" int slurm_spank_user_init(spank_t spank, int, char**) {
  return guarded("user_init", [&]() -> int {
    if (!is_rank_step(spank)) return ESPANK_SUCCESS;
    const EnvMap environment = job_environment(spank);
    const auto options = node.settings.resolve(environment.get(kOptionsVariable));
    const bool nobody_asks = options && !*options && announcement_in(environment).version.empty();
    if (nobody_asks) return ESPANK_SUCCESS;
    std::uint32_t tasks = 0;
    if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) == ESPANK_SUCCESS) node.board = TaskBoard(tasks);
    // What is wrong with the environment each task finds out for itself.
    const auto world_size = environment.integer("SLURM_STEP_NUM_TASKS", 1, INT32_MAX);
    if (world_size && *world_size) node.placement = SharedPlacement(**world_size);
    return ESPANK_SUCCESS;
  });
}

extern "C" int slurm_spank_task_init(spank_t spank, int, char**) {
  const int outcome = guarded("task_init", [&] { return export_torch_env(spank, node), ESPANK_SUCCESS; });
  if (outcome == ESPANK_SUCCESS) return outcome;
  mark_refused(spank, node.board);
  _exit(EXIT_FAILURE);
}

extern "C" int slurm_spank_task_exit(spank_t spank, int, char**) {
  return guarded("task_exit", [&] { return heed_first_failure(spank), ESPANK_SUCCESS; });
}

extern "C" int slurm_spank_exit(spank_t, int, char**) {
  return guarded("exit", [&]() -> int {
    if (const auto report = desk ? desk->first_report() : std::nullopt) tell_lines(*report);
    desk.reset();
    return ESPANK_SUCCESS;
  });
}
