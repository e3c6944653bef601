#include "bridge/core/nested_launch.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "bridge/base/take_until.h"

namespace torchbridge {

namespace {

constexpr const char* kRunId = "TORCHELASTIC_RUN_ID";
constexpr const char* kSetters[] = {"plugin", "exec", "run"};  // by SetBy

// How the names of variables begin that launchers set for each process; PMIX_MCA_* is the user's.
constexpr std::string_view kOfLaunchers[] = {"SLURM_STEP", "OMPI_COMM_WORLD_", "MPI_LOCAL", "PMI_",
                                             "PMIX_",      "FLUX_TASK_",       "PALS_",     "JSM_"};
// Lists of words: a table of pointers would be copied into each process that loads the plugin.
constexpr std::string_view kPositions = "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS";
// The defaults of torchrun's options that the plugin and exec set; other PET_* are the user's.
constexpr std::string_view kOfAgents =
    "PET_NNODES PET_NODE_RANK PET_RDZV_ID PET_RDZV_BACKEND PET_RDZV_ENDPOINT PET_LOCAL_ADDR "
    "PET_MASTER_ADDR PET_MASTER_PORT PET_NPROC_PER_NODE";
constexpr std::string_view kEndpoint = "RANK WORLD_SIZE MASTER_ADDR MASTER_PORT";

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    if (take_until(words, ' ') == word) return true;
  }
  return false;
}

// A blank of a value is '_' in kSetVariable.
char without_blank(char c) { return c == ' ' ? '_' : c; }

// What the plugin or exec set; empty where it is not known. Valid as long as the environment.
class SetRecord {
 public:
  explicit SetRecord(const EnvMap& environment) {
    const auto text = environment.get(kSetVariable);
    if (text && setter_of(environment).who <= SetBy::kExec) text_ = *text;
  }
  bool empty() const { return text_.empty(); }
  bool has(std::string_view name) const { return value_of(name).has_value(); }
  bool has(std::string_view name, std::string_view value) const {
    const auto set = value_of(name);
    return set && std::ranges::equal(*set, value, {}, {}, without_blank);
  }

 private:
  std::optional<std::string_view> value_of(std::string_view name) const {
    for (std::string_view rest = text_; !rest.empty();) {
      std::string_view word = take_until(rest, ' ');
      if (take_until(word, '=') == name) return word;
    }
    return std::nullopt;
  }
  std::string_view text_;
};

bool is_about_ranks(std::string_view name) {
  const auto names = variables_of(TorchEnv());
  return name == "TORCHBRIDGE_LISTEN_FD" || name == "TORCHELASTIC_ERROR_FILE" ||
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
    if (name.starts_with("CUDA_")) continue;
    record += name + "=";
    std::ranges::transform(value, std::back_inserter(record), without_blank);
    record += ' ';
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
    const bool is_needed = has_word(kEndpoint, name) || (name == "LOCAL_RANK" && keeps_local_rank);
    const bool is_outer = name == kSetByVariable || name == kSetVariable || set.has(name, value);
    const bool is_own = name != kSetByVariable && name != kSetVariable && !is_about_ranks(name);
    if (is_needed || !is_outer || is_own) rest.set(name, value);
  }
  return rest;
}

EnvMap without_outer_run(const EnvMap& environment, const LaunchFacts& facts) {
  const Setter setter = setter_of(environment);
  if (setter.launch.empty() || setter.launch == run_id_of(facts)) return environment;
  const SetRecord set(environment);
  // A script has set ranks beside an endpoint that is the task's.
  const bool keeps_ranks = is_changed(environment, {"RANK", "WORLD_SIZE"});
  const auto was_set = [&](const std::string& name, const std::string& value) {
    if (!set.empty()) return set.has(name, value);
    // An agent leaves these to the user, and exec before kSetVariable did not.
    const bool is_by_run = setter.who == SetBy::kRun;
    if (name == "ROLE_NAME" || name == "TORCH_NCCL_ASYNC_ERROR_HANDLING") return !is_by_run;
    return is_about_ranks(name) || (!is_by_run && has_word(kOfAgents, name));
  };
  EnvMap rest;
  for (const auto& [name, value] : environment) {
    const bool is_rank = has_word(kEndpoint, name) || name == "LOCAL_RANK";
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
    const bool is_position = has_word(kPositions, name);
    if (is_position ? value == "0" : !is_of_launcher || name.starts_with("PMIX_MCA_"))
      rest.set(name, value);
  }
  return rest;
}

}  // namespace torchbridge
