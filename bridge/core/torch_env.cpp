#include "bridge/core/torch_env.h"

#include "bridge/core/launch_facts.h"
#include "bridge/core/task_map.h"

namespace torchbridge {

std::string run_id_of(const LaunchFacts& facts) {
  std::string id = facts.launcher;
  if (!facts.job_id.empty()) id += "-" + facts.job_id;
  if (!facts.step_id.empty()) id += "." + facts.step_id;
  if (facts.restart_count > 0) id += "-r" + std::to_string(facts.restart_count);
  return id;
}

TorchEnv torch_env_of(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options, Endpoint master) {
  TorchEnv env;
  env.layout = layout_of(map, facts.rank);
  if (options.ranks == RankRule::kBlock) {
    const Layout& at = env.layout;
    env.layout.rank = map.ranks_before(at.node_rank) + at.local_rank;
  }
  env.master = std::move(master);
  env.run_id = run_id_of(facts);
  env.restart_count = facts.restart_count;
  return env;
}

EnvMap with_variables(EnvMap environment, const std::vector<Variable>& variables) {
  for (const auto& [name, value] : variables) environment.set(name, value);
  return environment;
}

std::vector<Variable> variables_of(const TorchEnv& env) {
  const Layout& at = env.layout;
  const auto text = [](int number) { return std::to_string(number); };
  return {
      {"LOCAL_RANK", text(at.local_rank)},
      {"RANK", text(at.rank)},
      {"GROUP_RANK", text(at.node_rank)},
      {"ROLE_RANK", text(at.rank)},
      {"ROLE_NAME", "default"},
      {"LOCAL_WORLD_SIZE", text(at.local_world_size)},
      {"WORLD_SIZE", text(at.world_size)},
      {"GROUP_WORLD_SIZE", text(at.node_count)},
      {"ROLE_WORLD_SIZE", text(at.world_size)},
      {"MASTER_ADDR", env.master.host},
      {"MASTER_PORT", text(env.master.port)},
      {"TORCHELASTIC_RESTART_COUNT", text(env.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", text(env.max_restarts)},
      {"TORCHELASTIC_RUN_ID", env.run_id},
      // PyTorch compares with "True" and "False" to the letter.
      {"TORCHELASTIC_USE_AGENT_STORE", env.use_agent_store ? "True" : "False"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
  };
}

Result<TorchEnv> torch_env_from(const EnvMap& environment) {
  const bool has_words = environment.get("RANK") == kNotLoaded || environment.get("WORLD_SIZE") == kNotLoaded;
  if (has_words || (environment.has(kStepRequestVariable) && !environment.has("RANK"))) {
    return Error{.message = "torch_env.so is not loaded on this node: add it to plugstack.conf of " +
                            printable(environment.get("SLURMD_NODENAME").value_or("the node")) +
                            ", or leave the node out (--exclude)",
                 .only_here = true};
  }
  for (const char* name : {"WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    if (environment.has(name)) continue;
    return Error{std::string(name) + " is not set: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them"};
  }
  const auto world_size = environment.required_integer("WORLD_SIZE", 1, kMaxRanks);
  if (!world_size) return world_size.error();
  const auto rank = environment.required_integer("RANK", 0, *world_size - 1);
  if (!rank) {
    return Error{.message = rank.error().message + " (WORLD_SIZE='" + std::to_string(*world_size) + "')",
                 .only_here = true};
  }
  const auto host = environment.required("MASTER_ADDR");
  if (!host) return host.error();
  const auto port = environment.required_integer("MASTER_PORT", 1, 65535);
  if (!port) return port.error();

  TorchEnv env;
  env.master = {std::string(*host), static_cast<int>(*port)};
  Layout& at = env.layout;
  at.rank = static_cast<int>(*rank);
  at.world_size = static_cast<int>(*world_size);
  // Missing variables mean one node that holds all ranks, as for a program started by hand.
  const struct {
    const char* name;
    int& value;
    int low, high, missing;
  } optional[] = {
      {"LOCAL_WORLD_SIZE", at.local_world_size, 1, at.world_size, at.world_size},
      {"LOCAL_RANK", at.local_rank, 0, at.world_size - 1, at.rank},
      {"GROUP_WORLD_SIZE", at.node_count, 1, at.world_size, 1},
      {"GROUP_RANK", at.node_rank, 0, at.world_size - 1, 0},
      {"TORCHELASTIC_RESTART_COUNT", env.restart_count, 0, INT32_MAX, 0},
      {"TORCHELASTIC_MAX_RESTARTS", env.max_restarts, 0, INT32_MAX, 0},
  };
  for (const auto& field : optional) {
    const auto number = environment.integer(field.name, field.low, field.high);
    if (!number) return Error{.message = number.error().message, .only_here = true};
    field.value = static_cast<int>(number->value_or(field.missing));
  }
  const auto too_large = [](const char* name, int value, const char* limit_name, int limit) {
    return Error{.message = std::string(name) + "='" + std::to_string(value) + "': expected less than " + limit_name +
                            "='" + std::to_string(limit) + "'",
                 .only_here = true};
  };
  if (at.node_rank >= at.node_count) return too_large("GROUP_RANK", at.node_rank, "GROUP_WORLD_SIZE", at.node_count);
  if (at.local_rank >= at.local_world_size) {
    return too_large("LOCAL_RANK", at.local_rank, "LOCAL_WORLD_SIZE", at.local_world_size);
  }
  env.run_id = environment.get("TORCHELASTIC_RUN_ID").value_or("none");
  env.use_agent_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return env;
}

}  // namespace torchbridge
