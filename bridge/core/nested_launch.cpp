#include "bridge/core/nested_launch.h"

#include <algorithm>

#include "bridge/base/take_until.h"

namespace torchbridge {

namespace {

constexpr const char* kRunId = "TORCHELASTIC_RUN_ID";
constexpr const char* kSetters[] = {"plugin", "exec", "run"};  // by SetBy

// How the names of variables begin that launchers set for each process; PMIX_MCA_* is the user's.
constexpr std::string_view kOfLaunchers[] = {"SLURM_STEP", "OMPI_COMM_WORLD_", "MPI_LOCAL", "PMI_",
                                             "PMIX_",      "FLUX_TASK_",       "PALS_",     "JSM_"};
// The defaults of torchrun's options that the plugin and exec set; other PET_* are the user's.
constexpr std::string_view kOfAgents[] = {
    "PET_NNODES",       "PET_NODE_RANK",     "PET_RDZV_ID",
    "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_LOCAL_ADDR",
    "PET_MASTER_ADDR",  "PET_MASTER_PORT",   "PET_NPROC_PER_NODE"};
constexpr std::string_view kPositions[] = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
                                           "SLURM_GTIDS"};

constexpr std::string_view kEndpoint[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

// "RANK=0 ", as in kSetVariable; a blank of the value is '_' there.
std::string entry(std::string_view name, std::string_view value) {
  std::string text = std::string(name) + "=" + std::string(value);
  std::ranges::replace(text, ' ', '_');
  return text + " ";
}

// What the plugin or exec set; empty where it is not known.
class SetRecord {
 public:
  explicit SetRecord(const EnvMap& environment) {
    const auto text = environment.get(kSetVariable);
    if (text && setter_of(environment).who <= SetBy::kExec) text_ = " " + std::string(*text);
  }
  bool empty() const { return text_.empty(); }
  bool has(std::string_view name) const { return contains(std::string(name) + "="); }
  bool has(std::string_view name, std::string_view value) const {
    return contains(entry(name, value));
  }

 private:
  bool contains(const std::string& word) const { return text_.find(" " + word) != text_.npos; }
  std::string text_;
};

bool is_about_ranks(std::string_view name) {
  const auto names = variables_of(TorchEnv());
  return name == kSetByVariable || name == kSetVariable || name == "TORCHBRIDGE_LISTEN_FD" ||
         name == "TORCHELASTIC_ERROR_FILE" ||
         std::ranges::find(names, name, &Variable::first) != names.end();
}

}  // namespace

Setter setter_of(const EnvMap& environment) {
  const auto run_id = environment.get(kRunId);  // with elastic=no there is none
  std::string_view value = environment.get(kSetByVariable).value_or("");
  const auto name = take_until(value, ' '), launch = take_until(value, ' ');
  const auto found = std::ranges::find(kSetters, name);
  if (found != std::end(kSetters) && run_id.value_or("") == value)
    return {static_cast<SetBy>(found - kSetters), std::string(launch)};
  return {run_id ? SetBy::kTorchrun : SetBy::kOthers};
}

std::string text_of(const Setter& setter, std::string_view run_id) {
  return kSetters[static_cast<int>(setter.who)] + (" " + setter.launch) + " " + std::string(run_id);
}

void add_setter(const Setter& setter, const EnvMap& environment, std::vector<Variable>& variables) {
  const EnvMap complete = with_variables(environment, variables);
  std::string record;
  for (const auto& [name, value] : variables) {
    if (!name.starts_with("CUDA_")) record += entry(name, value);
  }
  variables.emplace_back(kSetByVariable, text_of(setter, complete.get(kRunId).value_or("")));
  variables.emplace_back(kSetVariable, record);
}

bool is_changed(const EnvMap& environment, std::initializer_list<const char*> names) {
  const SetRecord set(environment);
  return std::ranges::any_of(names, [&](const char* name) {
    const auto value = environment.get(name);
    return set.has(name) && !(value && set.has(name, *value));
  });
}

EnvMap without_outer_ranks(const EnvMap& environment, bool keeps_local_rank) {
  const SetRecord set(environment);
  EnvMap rest;
  for (const auto& [name, value] : environment) {
    const bool is_needed =
        std::ranges::count(kEndpoint, name) > 0 || (name == "LOCAL_RANK" && keeps_local_rank);
    const bool is_outer = name == kSetByVariable || name == kSetVariable || set.has(name, value);
    if (is_needed || !is_outer || !is_about_ranks(name)) rest.set(name, value);
  }
  return rest;
}

EnvMap without_outer_run(const EnvMap& environment, const LaunchFacts& facts) {
  const Setter setter = setter_of(environment);
  if (setter.launch.empty() || setter.launch == run_id_of(facts)) return environment;
  const SetRecord set(environment);
  // A script has set ranks beside an endpoint that is the task's.
  const bool keeps_ranks = is_changed(environment, {"RANK", "WORLD_SIZE"});
  const auto was_set = [&](std::string_view name, std::string_view value) {
    if (!set.empty()) return set.has(name, value);
    // An agent leaves these to the user, and exec before kSetVariable did not.
    const bool is_by_run = setter.who == SetBy::kRun;
    if (name == "ROLE_NAME" || name == "TORCH_NCCL_ASYNC_ERROR_HANDLING") return !is_by_run;
    return is_about_ranks(name) || (!is_by_run && std::ranges::count(kOfAgents, name) > 0);
  };
  EnvMap rest;
  for (const auto& [name, value] : environment) {
    const bool is_rank = std::ranges::count(kEndpoint, name) > 0 || name == "LOCAL_RANK";
    const bool is_outer = name == kSetByVariable || name == kSetVariable ||
                          (was_set(name, value) && !(keeps_ranks && is_rank));
    if (!is_outer) rest.set(name, value);
  }
  return rest;
}

EnvMap without_launch(const EnvMap& environment) {
  EnvMap rest;
  for (const auto& [name, value] : without_outer_run(environment, {.launcher = "none"})) {
    const bool is_of_launcher = std::ranges::any_of(
        kOfLaunchers,
        [&its = name](std::string_view beginning) { return its.starts_with(beginning); });
    // Slurm gives a batch script the position of an only task.
    const bool is_position = std::ranges::find(kPositions, name) != std::end(kPositions);
    if (is_position ? value == "0" : !is_of_launcher || name.starts_with("PMIX_MCA_"))
      rest.set(name, value);
  }
  return rest;
}

}  // namespace torchbridge
