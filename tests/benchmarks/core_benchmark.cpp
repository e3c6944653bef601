// What one task of 100,000 on 12,500 nodes computes: Slurm's variables to torchrun's, whole and
// step by step.
#include <benchmark/benchmark.h>

#include "bridge/base/hostlist.h"
#include "bridge/core/endpoint.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/task_map.h"
#include "bridge/core/torch_env.h"
#include "bridge/step/explain.h"

using namespace torchbridge;

namespace {

constexpr int kNodes = 12'500;
constexpr int kTasksPerNode = 8;
constexpr int kNode = kNodes - 1;  // of the task that computes: the last one

enum Shape { kEven, kUneven, kCyclic };
constexpr const char* kShapeNames[] = {"block", "uneven block", "cyclic"};

// Of uneven nodes every second one has two tasks more than the others.
int tasks_on(Shape shape, int node) {
  return shape != kUneven ? kTasksPerNode : node % 2 == 0 ? kTasksPerNode + 1 : kTasksPerNode - 1;
}

std::string task_counts(Shape shape) {
  if (shape != kUneven) return "8(x" + std::to_string(kNodes) + ")";
  std::string text;
  for (int node = 0; node < kNodes; ++node)
    text += (node == 0 ? "" : ",") + std::to_string(tasks_on(shape, node));
  return text;
}

std::string ranks_here(Shape shape) {
  const int last = kNodes * kTasksPerNode - 1;
  std::string text;
  for (int i = tasks_on(shape, kNode) - 1; i >= 0; --i) {
    text += (text.empty() ? "" : ",") + std::to_string(last - i * (shape == kCyclic ? kNodes : 1));
  }
  return text;
}

EnvMap environment_of(Shape shape) {
  return {
      {"SLURM_JOB_ID", "123456"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_STEP_NUM_TASKS", std::to_string(kNodes * kTasksPerNode)},
      {"SLURM_PROCID", std::to_string(kNodes * kTasksPerNode - 1)},
      {"SLURM_NODEID", std::to_string(kNode)},
      {"SLURM_LOCALID", std::to_string(tasks_on(shape, kNode) - 1)},
      {"SLURM_GTIDS", ranks_here(shape)},
      {"SLURM_STEP_NODELIST", "node[00001-12500]"},
      {"SLURM_STEP_TASKS_PER_NODE", task_counts(shape)},
      {"SLURM_DISTRIBUTION", shape == kCyclic ? "cyclic" : "block"},
  };
}

// Throws, which ends the benchmark: a computation that fails is not fast, it is wrong.
template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

void variables_of_one_task(benchmark::State& state) {
  const auto shape = static_cast<Shape>(state.range(0));
  const EnvMap environment = environment_of(shape);
  LaunchOptions options;
  options.ranks = RankRule::kBlock;
  for (auto _ : state) {
    const LaunchFacts facts = value_of(read_slurm(environment));
    const TaskMap map = value_of(task_map_of(facts));
    const TorchEnv env =
        torch_env_of(facts, map, options, value_of(endpoint_of(facts, map, options, PortRange{})));
    benchmark::DoNotOptimize(variables_of(env));
  }
  state.SetLabel(kShapeNames[shape]);
}
BENCHMARK(variables_of_one_task)->DenseRange(kEven, kCyclic)->Unit(benchmark::kMillisecond);

void facts_of_one_task(benchmark::State& state) {
  const auto shape = static_cast<Shape>(state.range(0));
  const EnvMap environment = environment_of(shape);
  for (auto _ : state) benchmark::DoNotOptimize(value_of(read_slurm(environment)));
  state.SetLabel(kShapeNames[shape]);
}
BENCHMARK(facts_of_one_task)->DenseRange(kEven, kCyclic)->Unit(benchmark::kMillisecond);

void map_of_all_tasks(benchmark::State& state) {
  const auto shape = static_cast<Shape>(state.range(0));
  const LaunchFacts facts = value_of(read_slurm(environment_of(shape)));
  for (auto _ : state) benchmark::DoNotOptimize(value_of(task_map_of(facts)));
  state.SetLabel(kShapeNames[shape]);
}
BENCHMARK(map_of_all_tasks)->DenseRange(kEven, kCyclic)->Unit(benchmark::kMillisecond);

void names_of_all_nodes(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(value_of(parse_hostlist("node[00001-12500]")));
}
BENCHMARK(names_of_all_nodes)->Unit(benchmark::kMillisecond);

// The table of all tasks, by rank 0, when every node has said what it has.
void explanation_of_all_tasks(benchmark::State& state) {
  const auto shape = static_cast<Shape>(state.range(0));
  const LaunchFacts facts = value_of(read_slurm(environment_of(shape)));
  const TaskMap map = value_of(task_map_of(facts));
  const TorchEnv env = torch_env_of(facts, map, {}, {"10.0.0.1", 29500});
  std::vector<NodeFacts> nodes(kNodes, {"0,1,2,3,4,5,6,7", "0-127", "ib0"});
  for (int node = 0; node < kNodes; node += 100) nodes[node].interface = "eth0";
  std::size_t size = 0;
  for (auto _ : state) size = explain(facts, map, {}, {}, env, nodes).size();
  state.SetLabel(std::string(kShapeNames[shape]) + ", " + std::to_string(size) + " bytes");
}
BENCHMARK(explanation_of_all_tasks)->DenseRange(kEven, kCyclic)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
