#include "bridge/supervision/worker_environment.h"

#include "bridge/base/message_text.h"
#include "bridge/binding/visible_gpus.h"
#include "bridge/core/agent_command.h"
#include "bridge/supervision/signal_descriptor.h"

namespace torchbridge {
namespace {

constexpr std::string_view kListenVariable = "TORCHBRIDGE_LISTEN_FD";
constexpr std::string_view kAsyncErrors = "TORCH_NCCL_ASYNC_ERROR_HANDLING";

// As torchrun: on AMD's GPUs HIP's variable counts where it is set.
constexpr std::string_view kCudaVariable = "CUDA_VISIBLE_DEVICES",
                           kHipVariable = "HIP_VISIBLE_DEVICES";

bool has_hip_devices(const EnvMap& environment) {
  return !environment.get(kHipVariable).value_or("").empty();
}

std::string_view devices_variable(const EnvMap& environment) {
  return has_hip_devices(environment) ? kHipVariable : kCudaVariable;
}

// The visible device at this position, or the number itself where no variable is set.
std::string device_of(const EnvMap& environment, int local_rank) {
  const auto visible = environment.get(devices_variable(environment));
  return visible ? split_names(*visible)[static_cast<std::size_t>(local_rank)]
                 : std::to_string(local_rank);
}

// The agent's and what else all workers have in all attempts.
EnvMap common_environment(const EnvMap& environment, const RunOptions& options,
                          int local_world_size) {
  EnvMap common;
  for (const auto& [name, value] : environment) {
    const bool is_own =
        name == kListenVariable || name == kTokenVariable || name == kCarriedTokenVariable;
    if (!is_own) common.set(name, value);
  }
  common.set("ROLE_NAME", options.role);
  common.set("TORCHELASTIC_SIGNALS_TO_HANDLE", joined(options.signals_to_handle, ",", signal_name));
  if (!environment.has(kAsyncErrors)) common.set(kAsyncErrors, "1");
  if (local_world_size > 1 && environment.get("OMP_NUM_THREADS").value_or("").empty())
    common.set("OMP_NUM_THREADS", "1");
  return common;
}

}  // namespace

EnvMap preload_environment(const EnvMap& environment, const RunOptions& options, int workers) {
  EnvMap of_ranks, common;
  for (const auto& [name, value] : variables_of(TorchEnv{})) of_ranks.set(name, value);
  for (const auto& [name, value] : common_environment(environment, options, workers)) {
    if (name == "ROLE_NAME" || name == kAsyncErrors || !of_ranks.has(name)) common.set(name, value);
  }
  return common;
}

EnvMap worker_environment(const EnvMap& environment, const AttemptFacts& facts,
                          const RunOptions& options, int index, const std::string& error_file) {
  const WorkerRanks& at = facts.ranks;
  TorchEnv env;
  env.layout = {.rank = at.first_rank + index,
                .world_size = at.world_size,
                .local_rank = at.first_local_rank + index,
                .local_world_size = at.local_world_size,
                .node_rank = at.node_rank,
                .node_count = at.node_count};
  env.master = facts.master;
  env.run_id = facts.run_id;
  env.restart_count = facts.restart_count;
  env.max_restarts = facts.max_restarts;

  EnvMap worker = common_environment(environment, options, at.local_world_size);
  for (const auto& [name, value] : variables_of(env)) {
    if (name != "ROLE_NAME" && name != kAsyncErrors) worker.set(name, value);
  }
  worker.set("ROLE_RANK", std::to_string(at.first_role_rank + index));
  worker.set("ROLE_WORLD_SIZE", std::to_string(at.role_world_size));
  worker.set("TORCHELASTIC_ERROR_FILE", error_file);
  if (!facts.interface.empty() && !environment.has("GLOO_SOCKET_IFNAME")) {
    worker.set("GLOO_SOCKET_IFNAME", facts.interface);
  }
  if (options.has_virtual_local_rank) {
    worker.set("LOCAL_RANK", "0");
    const std::string device = device_of(environment, index);
    worker.set(kCudaVariable, device);
    if (has_hip_devices(environment)) worker.set(kHipVariable, device);
  }
  return worker;
}

Status check_virtual_devices(const EnvMap& environment, const RunOptions& options, int workers) {
  const std::string_view variable = devices_variable(environment);
  const auto visible = environment.get(variable);
  if (!options.has_virtual_local_rank || !visible) return Ok{};
  const auto devices = split_names(*visible).size();
  if (devices >= static_cast<std::size_t>(workers)) return Ok{};
  return Error{formatted("--virtual-local-rank: {}='{}' has {} devices for {} workers", variable,
                         printable(*visible), devices, workers)};
}

}  // namespace torchbridge
