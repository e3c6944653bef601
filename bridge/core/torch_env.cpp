#include "bridge/core/torch_env.h"

#include "bridge/base/host_text.h"
#include "bridge/base/message_text.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/task_map.h"

namespace torchbridge {
namespace {

// What is set, and empty, is named first: the others may be missing because a script made none of
// them.
Status are_set_together(const EnvMap& environment) {
  constexpr const char* kNames[] = {"WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"};
  const std::string advice = ": set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them";
  for (const char* name : kNames) {
    if (environment.get(name) == "") return Error{formatted("{} is empty{}", name, advice)};
  }
  for (const char* name : kNames) {
    if (!environment.has(name)) return Error{formatted("{} is not set{}", name, advice)};
  }
  return Ok{};
}

}  // namespace

std::string run_id_of(const LaunchFacts& facts) {
  std::string id = facts.launcher;
  if (!facts.job_id.empty()) id += "-" + facts.job_id;
  if (!facts.step_id.empty()) id += "." + facts.step_id;
  if (facts.restart_count > 0) id += "-r" + std::to_string(facts.restart_count);
  return id;
}

TorchEnv torch_env_of(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                      Endpoint master) {
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
  const auto is_number = [&](const char* name) {
    return parse_integer(environment.get(name).value_or(""), 0, kMaxRanks).has_value();
  };
  // Else the user's own.
  if (environment.has(kStepRequestVariable) && !(is_number("RANK") && is_number("WORLD_SIZE"))) {
    return Error{
        .message = formatted("torch_env.so is not loaded on this node: add it to plugstack.conf of "
                             "{}, or leave the node out (--exclude)",
                             printable(environment.get("SLURMD_NODENAME").value_or("the node"))),
        .only_here = true};
  }
  if (const auto there = are_set_together(environment); !there) return there.error();
  const auto world_size = environment.required_integer("WORLD_SIZE", 1, kMaxRanks);
  if (!world_size) return world_size.error();
  const auto rank = environment.required_integer("RANK", 0, *world_size - 1);
  if (!rank) {
    return Error{.message = formatted("{} (WORLD_SIZE='{}')", rank.error().message, *world_size),
                 .only_here = true};
  }
  const auto host = environment.get("MASTER_ADDR");
  if (!is_host_text(*host))
    return Error{formatted("MASTER_ADDR='{}': expected a host name or an address, without a port",
                           printable(*host))};
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
      {"LOCAL_RANK", at.local_rank, 0, at.world_size - 1, -1},
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
  if (at.local_rank < 0) at.local_rank = at.rank % at.local_world_size;
  const auto too_large = [](const char* name, int value, const char* limit_name, int limit) {
    return Error{
        .message = formatted("{}='{}': expected less than {}='{}'", name, value, limit_name, limit),
        .only_here = true};
  };
  if (at.node_rank >= at.node_count)
    return too_large("GROUP_RANK", at.node_rank, "GROUP_WORLD_SIZE", at.node_count);
  if (at.local_rank >= at.local_world_size) {
    return too_large("LOCAL_RANK", at.local_rank, "LOCAL_WORLD_SIZE", at.local_world_size);
  }
  env.run_id = environment.get("TORCHELASTIC_RUN_ID").value_or("none");
  env.use_agent_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return env;
}

}  // namespace torchbridge
