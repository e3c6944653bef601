#include "bridge/core/nested_launch.h"

#include <algorithm>

#include "bridge/core/torch_env.h"

namespace torchbridge {
namespace {

constexpr std::string_view kOtherVariables[] = {"TORCHBRIDGE_LISTEN_FD", kRunVariable, "TORCHELASTIC_ERROR_FILE"};

// ".../attempt_0/3/error.json"
bool is_torchruns(std::string_view file) {
  return file.find("/attempt_") != file.npos && file.ends_with("/error.json");
}

std::string_view run_id_in(const EnvMap& environment) { return environment.get("TORCHELASTIC_RUN_ID").value_or(""); }

}  // namespace

// torchrun's workers may have our run id, from PET_RDZV_ID, but an error file of torchrun's.
bool is_set_by_us(const EnvMap& environment) {
  const auto run_id = run_id_in(environment);
  const auto file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  if (run_id.empty()) return false;
  if (file.find("/torch-env-") != file.npos && file.find("/" + std::string(run_id) + "-attempt_") != file.npos)
    return true;
  return environment.get(kRunVariable) == run_id && !is_torchruns(file);
}

bool is_set_for(const EnvMap& environment, const LaunchFacts& facts) {
  const auto run_id = run_id_in(environment);
  const bool same_launcher = run_id.starts_with(facts.launcher + "-");
  return is_set_by_us(environment) && same_launcher && (facts.job_id.empty() || run_id == run_id_of(facts));
}

EnvMap without_outer_run(const EnvMap& environment, const LaunchFacts& facts) {
  if (!is_set_by_us(environment) || is_set_for(environment, facts)) return environment;
  const auto names = variables_of(TorchEnv());
  EnvMap rest;
  for (const auto& [name, value] : environment) {
    const bool set_by_us =
        name.starts_with("PET_") ||
        std::find(std::begin(kOtherVariables), std::end(kOtherVariables), name) != std::end(kOtherVariables) ||
        std::any_of(names.begin(), names.end(), [&n = name](const auto& variable) { return variable.first == n; });
    if (!set_by_us) rest.set(name, value);
  }
  return rest;
}

}  // namespace torchbridge
