#include "bridge/agent/worker_count.h"

#include <gtest/gtest.h>

using namespace torchbridge;

namespace {

using Kind = WorkersPerNode::Kind;

Machine machine_of(int gpus, CpuSet cpus) {
  Machine machine;
  machine.topology.gpus.resize(static_cast<std::size_t>(gpus));
  machine.cpus = std::move(cpus);
  return machine;
}

TEST(WorkerCount, CountsWhatTheProcessMayUse) {
  const struct {
    WorkersPerNode value;
    EnvMap environment;
    Machine machine;
    int expected;
  } cases[] = {
      {{Kind::kNumber, 3}, {}, machine_of(8, {0}), 3},
      {{Kind::kGpu}, {}, machine_of(8, {0}), 8},
      {{Kind::kGpu}, {{"CUDA_VISIBLE_DEVICES", "2,GPU-a"}}, machine_of(8, {0}), 2},
      {{Kind::kGpu}, {{"CUDA_VISIBLE_DEVICES", "0, 1, -1, 3"}}, machine_of(8, {0}), 2},
      {{Kind::kGpu}, {{"CUDA_VISIBLE_DEVICES", "2,-1,3"}}, machine_of(8, {0}), 1},
      {{Kind::kAuto}, {}, machine_of(2, {0, 1, 2}), 2},
      {{Kind::kAuto}, {{"CUDA_VISIBLE_DEVICES", ""}}, machine_of(2, {0, 1, 2}), 3},
      {{Kind::kAuto}, {}, machine_of(0, {0, 1, 2}), 3},
      {{Kind::kCpu}, {}, machine_of(2, {4, 5, 6, 7}), 4},
      {{Kind::kCpu}, {}, machine_of(2, {}), 1},
  };
  for (const auto& c : cases) {
    const auto count = worker_count(c.value, false, c.environment, c.machine);
    ASSERT_TRUE(count) << c.expected;
    EXPECT_EQ(*count, c.expected);
  }
}

TEST(WorkerCount, IsTheMachinesForTheOneTaskOfItsNode) {
  EXPECT_EQ(*worker_count({}, true, {}, machine_of(0, {0, 1, 2})), 3);
  EXPECT_EQ(*worker_count({}, true, {}, machine_of(4, {0, 1, 2})), 4);
  EXPECT_EQ(*worker_count({Kind::kNumber, 2}, true, {}, machine_of(4, {0, 1, 2})), 2);
  EXPECT_EQ(*worker_count({}, false, {}, machine_of(4, {0, 1, 2})), 1);
}

TEST(WorkerCount, OfGpusIsAnErrorWithoutOne) {
  EXPECT_FALSE(worker_count({Kind::kGpu}, false, {}, machine_of(0, {0})));
}

}  // namespace
