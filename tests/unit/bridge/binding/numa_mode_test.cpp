#include "bridge/binding/numa_mode.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

CpuSet cpus(const char* text) { return *parse_cpu_list(text); }

// Two sockets of two nodes each, four cores of two threads and two caches a node, two GPUs on each
// node.
Machine large_machine() {
  Machine machine;
  Topology& topology = machine.topology;
  for (int node = 0; node < 4; ++node) {
    NumaNode one{node, {}, {}};
    for (const int first : {4 * node, 16 + 4 * node}) {
      for (int cpu = first; cpu < first + 4; ++cpu) one.cpus.push_back(cpu);
    }
    topology.nodes.push_back(one);
  }
  for (int core = 0; core < 16; ++core) topology.cores.push_back({core, core + 16});
  topology.sockets = {cpus("0-7,16-23"), cpus("8-15,24-31")};
  for (int core = 0; core < 16; core += 2)
    topology.caches.push_back({core, core + 1, core + 16, core + 17});
  for (int gpu = 0; gpu < 8; ++gpu) {
    topology.gpus.push_back(
        {.address = {0, static_cast<unsigned>(gpu), 0, 0}, .numa_node = gpu / 2});
  }
  return machine;
}

// What the worker gets: its CPUs, or the error.
std::string bound(NumaMode mode, const Machine& machine, int local_rank) {
  const auto found = cpus_of_worker(mode, machine, machine.topology.usable_gpus(), local_rank);
  return found ? cpu_list_text(*found) : found.error().message;
}

TEST(NumaMode, SelectsByTheWorkersGpu) {
  const struct {
    NumaMode mode;
    int local_rank;
    const char* expected;
  } kCases[] = {
      {NumaMode::kNode, 0, "0-3,16-19"},          {NumaMode::kNode, 1, "0-3,16-19"},
      {NumaMode::kNode, 7, "12-15,28-31"},        {NumaMode::kSocket, 2, "0-7,16-23"},
      {NumaMode::kSocket, 4, "8-15,24-31"},       {NumaMode::kExclusive, 0, "0-1,16-17"},
      {NumaMode::kExclusive, 1, "2-3,18-19"},     {NumaMode::kExclusive, 6, "12-13,28-29"},
      {NumaMode::kCoreComplex, 0, "0-1,16-17"},   {NumaMode::kCoreComplex, 1, "2-3,18-19"},
      {NumaMode::kCoreComplex, 5, "10-11,26-27"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(bound(test.mode, large_machine(), test.local_rank), test.expected) << test.local_rank;
  }
}

TEST(NumaMode, KeepsToTheCpusOfTheAgent) {
  Machine machine = large_machine();
  machine.cpus = cpus("1-3,8-9,17");
  EXPECT_EQ(bound(NumaMode::kNone, machine, 0), "1-3,8-9,17");
  EXPECT_EQ(bound(NumaMode::kNode, machine, 0), "1-3,17");
  EXPECT_EQ(bound(NumaMode::kSocket, machine, 0), "1-3,17");  // none of the other node
  // Three cores: the first GPU has two.
  EXPECT_EQ(bound(NumaMode::kExclusive, machine, 0), "1-2,17");
  EXPECT_EQ(bound(NumaMode::kExclusive, machine, 1), "3");
  EXPECT_EQ(bound(NumaMode::kCoreComplex, machine, 0), "1,17");  // as many as 2-3, and lower
  EXPECT_EQ(bound(NumaMode::kCoreComplex, machine, 1), "2-3");
}

TEST(NumaMode, CoreComplexTakesTheLargestCacheFirst) {
  Machine machine = large_machine();
  machine.cpus = cpus("1-3,18-19");
  EXPECT_EQ(bound(NumaMode::kCoreComplex, machine, 0), "2-3,18-19");
  EXPECT_EQ(bound(NumaMode::kCoreComplex, machine, 1), "1");
  machine.topology.gpus[2].numa_node = 0;  // the third GPU of two caches
  EXPECT_EQ(bound(NumaMode::kCoreComplex, machine, 2), "2-3,18-19");
}

TEST(NumaMode, AGpuWithoutANodeIsOnTheFirst) {
  Machine machine = large_machine();
  machine.topology.gpus[7].numa_node = -1;
  EXPECT_EQ(bound(NumaMode::kNode, machine, 7), "0-3,16-19");
  EXPECT_EQ(bound(NumaMode::kExclusive, machine, 7), "3,19");
}

TEST(NumaMode, ErrorsNameModeGpuAndWhatIsMissing) {
  const struct {
    NumaMode mode;
    int local_rank;
    void (*change)(Machine&);
    const char* expected;
  } kCases[] = {
      {NumaMode::kNode, 8, [](Machine&) {},
       "--numa-binding node: local rank 8 has no GPU, this node has 8: start no more workers than "
       "GPUs "
       "(--nproc-per-node), or leave the option out"},
      {NumaMode::kSocket, 2,
       [](Machine& m) {
         m.cpus = {0, 1};
       },
       "--numa-binding socket: GPU 2 (0000:02:00.0) is on NUMA node 1 with the CPUs '4-7,20-23', "
       "and this process may "
       "use only '0-1': allow it CPUs of that node, or leave the option out"},
      {NumaMode::kExclusive, 2, [](Machine& m) { m.topology.gpus[2].numa_node = 9; },
       "--numa-binding exclusive: GPU 2 (0000:02:00.0) is on NUMA node 9, which this machine does "
       "not show: leave the "
       "option out"},
      {NumaMode::kExclusive, 0,
       [](Machine& m) {
         m.cpus = {0, 16};
       },
       "--numa-binding exclusive: NUMA node 0 has 1 core for this process, and 2 GPUs: use "
       "--numa-binding node"},
      {NumaMode::kSocket, 0, [](Machine& m) { m.topology.sockets.clear(); },
       "--numa-binding socket: this machine does not show the socket of CPU 0: use --numa-binding "
       "node"},
      {NumaMode::kCoreComplex, 0,
       [](Machine& m) { m.topology.caches.erase(m.topology.caches.begin() + 1); },
       "--numa-binding core-complex: this machine does not show which CPUs share a cache with CPU "
       "2: use "
       "--numa-binding node"},
  };
  for (const auto& test : kCases) {
    Machine machine = large_machine();
    test.change(machine);
    EXPECT_EQ(bound(test.mode, machine, test.local_rank), test.expected);
  }
}

TEST(NumaMode, GpusAreThoseThatCudaCounts) {
  Machine machine = large_machine();
  machine.topology.gpus[1].usable = false;
  machine.topology.gpus[3].uuid = "GPU-abc";
  const auto indices = [&](const EnvMap& environment) {
    const auto gpus = gpus_of_workers(environment, machine.topology);
    std::string text;
    for (const Gpu* gpu : gpus ? *gpus : std::vector<const Gpu*>())
      text += std::to_string(gpu->address.bus) + " ";
    return gpus ? text : gpus.error().message;
  };
  EXPECT_EQ(indices({}), "0 2 3 4 5 6 7 ");
  EXPECT_EQ(indices({{"CUDA_VISIBLE_DEVICES", "5,0,GPU-a"}}), "6 0 3 ");
  EXPECT_EQ(indices({{"CUDA_VISIBLE_DEVICES", ""}}), "");
  EXPECT_EQ(indices({{"CUDA_VISIBLE_DEVICES", "0,7"}}),
            "--numa-binding: '7' of CUDA_VISIBLE_DEVICES is not one of the 7 GPUs found on this "
            "machine: leave the "
            "option out");
}

}  // namespace
}  // namespace torchbridge
