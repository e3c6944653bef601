#include "bridge/binding/topology.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(Topology, ReadsPciAddresses) {
  for (const char* text : {"0000:07:00.0", "10000:e1:1f.7", "0009:01:00.0"}) {
    const auto address = parse_pci_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
  }
  // As nvidia-smi writes it.
  EXPECT_EQ(parse_pci_address("00000000:1B:00.0")->text(), "0000:1b:00.0");
  for (const char* wrong : {"", "07:00.0", "0000:07:00", "0000:07:00.8", "0000:100:00.0",
                            "0000:07:20.0", "0000:07:00.0 ", "0000:0x7:00.0"}) {
    EXPECT_FALSE(parse_pci_address(wrong)) << wrong;
  }
}

TEST(Topology, ReadsTheDriversRecord) {
  const auto record = parse_driver_record(
      "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1d3e\nDevice Minor: \t 3\nGPU Excluded:\t Yes\n");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->minor, 3);
  EXPECT_EQ(record->uuid, "GPU-1d3e");
  EXPECT_TRUE(record->excluded);

  const auto unused = parse_driver_record(
      "GPU UUID:        GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?\nBlacklisted:     No");
  ASSERT_TRUE(unused);
  EXPECT_EQ(unused->minor, -1);
  EXPECT_EQ(unused->uuid, "");
  EXPECT_FALSE(unused->excluded);
  EXPECT_TRUE(parse_driver_record(""));
  EXPECT_FALSE(parse_driver_record("Device Minor: -1"));
}

TEST(Topology, ReadsDistances) {
  EXPECT_EQ(*parse_distances("10 12  32\n"), (std::vector<int>{10, 12, 32}));
  EXPECT_EQ(*parse_distances(""), std::vector<int>());
  for (const char* wrong : {"10 x", "10,12", "256", "-1"})
    EXPECT_FALSE(parse_distances(wrong)) << wrong;
}

// Two nodes with two GPUs each, in reverse order, and one without a NUMA node.
Topology four_and_one() {
  Topology topology;
  const int node_of[] = {1, 1, 0, 0, -1};
  for (unsigned bus = 0; bus < 5; ++bus) {
    Gpu gpu;
    gpu.address.bus = bus;
    gpu.numa_node = node_of[bus];
    gpu.uuid = "GPU-" + std::string(1, static_cast<char>('a' + bus)) + "00";
    topology.gpus.push_back(gpu);
  }
  topology.nodes = {{0, {0, 1}, {10, 21}}, {1, {2, 3}, {21, 10}}};
  return topology;
}

TEST(Topology, FindsGpusByName) {
  Topology topology = four_and_one();
  topology.gpus[0].usable = false;
  const struct {
    const char* name;
    int bus;  // -1: not found
  } kCases[] = {
      {"0", 1},        {"3", 4},        {"4", -1},
      {"-1", -1},      {"GPU-b00", 1},  {"GPU-b", 1},
      {"GPU-", -1},    {"GPU-a00", -1}, {"MIG-GPU-c00/1/0", 2},
      {"MIG-c00", -1}, {"b00", -1},     {"", -1},
  };
  for (const auto& test : kCases) {
    const Gpu* gpu = topology.gpu_named(test.name);
    EXPECT_EQ(gpu == nullptr ? -1 : static_cast<int>(gpu->address.bus), test.bus) << test.name;
  }
}

TEST(Topology, MeasuresFromTheNearestCpu) {
  Topology topology = four_and_one();
  const Gpu &near_one = topology.gpus[0], &lost = topology.gpus[4];
  EXPECT_EQ(topology.distance({0}, near_one), 21);
  EXPECT_EQ(topology.distance({0, 3}, near_one), 10);
  EXPECT_EQ(topology.distance({0}, lost), 10);
  topology.gpus[4].local_cpus = {2, 3};
  EXPECT_EQ(topology.distance({0}, lost), 20);
  topology.nodes[0].distances.clear();  // firmware without a table
  EXPECT_EQ(topology.distance({0}, near_one), 20);
}

TEST(Topology, KnowsTheCpusNearAGpu) {
  Topology topology = four_and_one();
  topology.gpus[0].local_cpus = {7};
  EXPECT_EQ(topology.cpus_near(topology.gpus[0]), (CpuSet{2, 3}));
  topology.nodes[1].cpus.clear();  // memory only
  EXPECT_EQ(topology.cpus_near(topology.gpus[0]), (CpuSet{7}));
  EXPECT_EQ(topology.cpus_near(topology.gpus[4]), CpuSet());
}

}  // namespace
}  // namespace torchbridge
