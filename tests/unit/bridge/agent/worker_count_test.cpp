#include "bridge/agent/worker_count.h"

#include <gtest/gtest.h>

using namespace torchbridge;

namespace {

Machine machine_of(int gpus, CpuSet cpus) {
  Machine machine;
  machine.topology.gpus.resize(static_cast<std::size_t>(gpus));
  machine.cpus = std::move(cpus);
  return machine;
}

TEST(WorkerCount, CountsWhatTheProcessMayUse) {
  const struct {
    const char* value;
    EnvMap environment;
    Machine machine;
    int expected;
  } cases[] = {
      {"3", {}, machine_of(8, {0}), 3},
      {"gpu", {}, machine_of(8, {0}), 8},
      {"gpu", {{"CUDA_VISIBLE_DEVICES", "2,GPU-a"}}, machine_of(8, {0}), 2},
      {"gpu", {{"CUDA_VISIBLE_DEVICES", "2,-1,3"}}, machine_of(8, {0}), 1},
      {"auto", {}, machine_of(2, {0, 1, 2}), 2},
      {"auto", {{"CUDA_VISIBLE_DEVICES", ""}}, machine_of(2, {0, 1, 2}), 3},
      {"auto", {}, machine_of(0, {0, 1, 2}), 3},
      {"cpu", {}, machine_of(2, {4, 5, 6, 7}), 4},
      {"cpu", {}, machine_of(2, {}), 1},
  };
  for (const auto& c : cases) {
    const auto count = worker_count(c.value, false, c.environment, c.machine);
    ASSERT_TRUE(count) << c.value;
    EXPECT_EQ(*count, c.expected) << c.value;
  }
}

TEST(WorkerCount, IsTheMachinesForTheOneTaskOfItsNode) {
  EXPECT_EQ(*worker_count("", true, {}, machine_of(0, {0, 1, 2})), 3);
  EXPECT_EQ(*worker_count("", true, {}, machine_of(4, {0, 1, 2})), 4);
  EXPECT_EQ(*worker_count("2", true, {}, machine_of(4, {0, 1, 2})), 2);
  EXPECT_EQ(*worker_count("", false, {}, machine_of(4, {0, 1, 2})), 1);
}

TEST(WorkerCount, RejectsWhatIsNoNumberOfWorkers) {
  for (const char* value : {"0", "-1", "two", " ", "xpu", "99999999999"}) {
    const auto count = worker_count(value, false, {}, machine_of(1, {0}));
    ASSERT_FALSE(count) << value;
    EXPECT_NE(count.error().message.find("--nproc-per-node"), std::string::npos) << count.error().message;
  }
  EXPECT_FALSE(worker_count("gpu", false, {}, machine_of(0, {0})));
}

}  // namespace
