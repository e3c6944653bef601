#include "bridge/supervision/worker_environment.h"

#include "bridge/binding/visible_gpus.h"
#include "bridge/core/agent_command.h"
#include "bridge/supervision/signal_descriptor.h"

namespace torchbridge {
namespace {

constexpr std::string_view kListenVariable = "TORCHBRIDGE_LISTEN_FD";

std::string names_of(const std::vector<int>& signals) {
  std::string names;
  for (const int signal : signals) names += (names.empty() ? "" : ",") + signal_name(signal);
  return names;
}

// The device of CUDA_VISIBLE_DEVICES at this position, or the number itself where the variable is not set.
std::string device_of(const EnvMap& environment, int local_rank) {
  const auto visible = environment.get("CUDA_VISIBLE_DEVICES");
  return visible ? split_names(*visible)[static_cast<std::size_t>(local_rank)] : std::to_string(local_rank);
}

}  // namespace

EnvMap worker_environment(const EnvMap& environment, const AttemptFacts& facts, const RunOptions& options, int index,
                          const std::string& error_file) {
  TorchEnv env;
  env.layout = {.rank = facts.first_rank + index,
                .world_size = facts.world_size,
                .local_rank = facts.first_local_rank + index,
                .local_world_size = facts.local_world_size,
                .node_rank = facts.node_rank,
                .node_count = facts.node_count};
  env.master = facts.master;
  env.run_id = facts.run_id;
  env.restart_count = facts.restart_count;
  env.max_restarts = facts.max_restarts;

  EnvMap worker;
  for (const auto& [name, value] : environment) {
    if (name == kListenVariable || name == kTokenVariable) continue;  // the agent's own
    worker.set(name, value);
  }
  for (const auto& [name, value] : variables_of(env)) {
    const bool is_users = name == "TORCH_NCCL_ASYNC_ERROR_HANDLING" && environment.has(name);
    if (!is_users) worker.set(name, value);
  }
  worker.set("ROLE_NAME", options.role);
  worker.set("TORCHELASTIC_ERROR_FILE", error_file);
  worker.set("TORCHELASTIC_SIGNALS_TO_HANDLE", names_of(options.signals_to_handle));
  if (facts.local_world_size > 1 && !environment.has("OMP_NUM_THREADS")) worker.set("OMP_NUM_THREADS", "1");
  if (!facts.interface.empty() && !environment.has("GLOO_SOCKET_IFNAME")) {
    worker.set("GLOO_SOCKET_IFNAME", facts.interface);
  }
  if (options.has_virtual_local_rank) {
    worker.set("LOCAL_RANK", "0");
    worker.set("CUDA_VISIBLE_DEVICES", device_of(environment, index));
  }
  return worker;
}

Status check_virtual_devices(const EnvMap& environment, const RunOptions& options, int workers) {
  const auto visible = environment.get("CUDA_VISIBLE_DEVICES");
  if (!options.has_virtual_local_rank || !visible) return Ok{};
  const auto devices = split_names(*visible).size();
  if (devices >= static_cast<std::size_t>(workers)) return Ok{};
  return Error{"--virtual-local-rank: CUDA_VISIBLE_DEVICES='" + printable(*visible) + "' has " +
               std::to_string(devices) + " devices for " + std::to_string(workers) + " workers"};
}

}  // namespace torchbridge
