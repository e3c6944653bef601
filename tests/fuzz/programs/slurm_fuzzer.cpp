// Slurm's variables down to torchrun's: whatever they hold, they are rejected with a message, or
// every rank that the task map knows has a place of its own, and the variables read back as they
// were written.
#include "bridge/core/endpoint.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/task_map.h"
#include "bridge/core/torch_env.h"
#include "tests/fuzz/programs/expect.h"

using namespace torchbridge;

namespace {

// The input is the values of these, one a line; what is missing at the end is not set.
constexpr const char* kVariables[] = {
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_NODEID",
    "SLURM_LOCALID",
    "SLURM_GTIDS",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_DISTRIBUTION",
    "SLURM_DIST_PLANESIZE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_RESV_PORTS",
};

EnvMap environment_of(std::string_view text) {
  EnvMap environment;
  for (const char* name : kVariables) {
    const auto end = text.find('\n');
    environment.set(name, text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return environment;
}

void expect_places(const TaskMap& map) {
  std::vector<std::vector<bool>> taken;
  for (int node = 0; node < map.node_count(); ++node) taken.emplace_back(map.tasks_on(node), false);
  int placed = 0;
  for (int rank = 0; rank < map.world_size(); ++rank) {
    if (!map.knows(rank)) continue;
    const Layout at = layout_of(map, rank);
    expect(at.node_rank >= 0 && at.node_rank < at.node_count, "a rank is on a node of the step");
    expect(at.local_rank >= 0 && at.local_rank < at.local_world_size,
           "a local rank is below the local size");
    expect(!taken[at.node_rank][at.local_rank], "no two ranks have the same place");
    taken[at.node_rank][at.local_rank] = true;
    ++placed;
  }
  expect(map.complete() == (placed == map.world_size()), "a complete map knows every rank");
  const int last = map.node_count() - 1;
  expect(map.ranks_before(last) + map.tasks_on(last) == map.world_size(),
         "the nodes' counts add up to the world");
}

void expect_variables(const LaunchFacts& facts, const TaskMap& map, const Endpoint& master,
                      RankRule ranks) {
  LaunchOptions options;
  options.ranks = ranks;
  const TorchEnv env = torch_env_of(facts, map, options, master);
  EnvMap variables;
  for (const auto& [name, value] : variables_of(env)) variables.set(name, value);
  const auto read_back = torch_env_from(variables);
  if (!read_back) std::fprintf(stderr, "%s\n", read_back.error().message.c_str());
  expect(static_cast<bool>(read_back), "a process takes the variables that it was given");
  expect(read_back->layout == env.layout && read_back->master == env.master &&
             read_back->run_id == env.run_id && read_back->restart_count == env.restart_count,
         "the variables read back as they were written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (is_slow(text_of(data, size))) return 0;
  const auto facts = read_slurm(environment_of(text_of(data, size)));
  if (!facts) return expect_presentable(facts.error()), 0;
  if (facts->world_size > 10'000) return 0;  // right, but slow
  const auto map = task_map_of(*facts);
  if (!map) return expect_presentable(map.error()), 0;
  expect(map->world_size() == facts->world_size, "the map is of the step's size");
  expect(map->knows(facts->rank), "a task finds itself in the map");
  expect_places(*map);

  for (const RankRule ranks : {RankRule::kSlurm, RankRule::kBlock}) {
    LaunchOptions options;
    options.ranks = ranks;
    const auto master = endpoint_of(*facts, *map, options, PortRange{});
    if (master) {
      expect_variables(*facts, *map, *master, ranks);
    } else {
      expect_presentable(master.error());
    }
  }
  return 0;
}
