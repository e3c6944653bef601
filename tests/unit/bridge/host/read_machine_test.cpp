#include "bridge/host/read_machine.h"

#include <sched.h>

#include <gtest/gtest.h>

#include "tests/support/machine_tree.h"

namespace torchbridge {
namespace {

std::vector<std::string> addresses(const Topology& topology) {
  std::vector<std::string> all;
  for (const Gpu* gpu : topology.usable_gpus()) all.push_back(gpu->address.text());
  return all;
}

using Names = std::vector<std::string>;

TEST(Machine, ReadsRecordedMachines) {
  const struct {
    const char* name;
    std::vector<int> node_of_gpu;
    std::size_t nodes, cores;
  } kCases[] = {
      {"perlmutter-gpu", {3, 2, 1, 0}, 4, 64},
      {"dgx-a100", {3, 3, 1, 1, 7, 7, 5, 5}, 8, 128},
      {"dgx-h100", {0, 0, 0, 0, 1, 1, 1, 1}, 2, 112},
      {"jedi-gh200", {0, 1, 2, 3}, 8, 0},
      {"five-gpus", {1, 0, 0, 0, 0}, 2, 16},
      {"vm-1gpu", {-1}, 1, 8},
      {"workstation-1gpu", {-1}, 1, 4},
      {"two-gpus-driver", {0, 0}, 1, 10},
  };
  for (const auto& test : kCases) {
    const Topology topology = MachineTree(test.name).topology();
    std::vector<int> nodes;
    for (const Gpu* gpu : topology.usable_gpus()) nodes.push_back(gpu->numa_node);
    EXPECT_EQ(nodes, test.node_of_gpu) << test.name;
    EXPECT_EQ(topology.nodes.size(), test.nodes) << test.name;
    EXPECT_EQ(topology.cores.size(), test.cores) << test.name;
  }
}

TEST(Machine, KnowsHowFarNodesAre) {
  const Topology topology = MachineTree("dgx-a100").topology();
  const Gpu& first = *topology.gpu_named("0");
  EXPECT_EQ(topology.distance({48}, first), 10);
  EXPECT_EQ(topology.distance({0}, first), 12);
  EXPECT_EQ(topology.distance({64}, first), 32);
  EXPECT_EQ(topology.distance({64, 176}, first), 10);
  EXPECT_EQ(cpu_list_text(topology.cpus_near(first)), "48-63,176-191");
  EXPECT_EQ(topology.cores[0], (CpuSet{0, 128}));
}

TEST(Machine, LeavesOutWhatIsNoGpu) {
  // With a sound function, and a display controller of another vendor.
  MachineTree tree("workstation-1gpu");
  tree.describe("function 0000:c4:00.0 0x068000 0x10de -1");  // an NVSwitch
  EXPECT_EQ(addresses(tree.topology()), Names{"0000:04:00.0"});
}

TEST(Machine, OrdersGpusByAddress) {
  MachineTree tree;
  for (const char* address :
       {"0001:01:00.0", "0000:c1:00.0", "10000:02:00.0", "0000:03:00.0", "0000:03:1f.1"}) {
    tree.describe(std::string("gpu ") + address + " 0 0-3");
  }
  EXPECT_EQ(addresses(tree.topology()), (Names{"0000:03:00.0", "0000:03:1f.1", "0000:c1:00.0",
                                               "0001:01:00.0", "10000:02:00.0"}));
}

TEST(Machine, UsesTheDriversListOfGpus) {
  MachineTree tree("two-gpus-driver");
  const Topology topology = tree.topology();
  EXPECT_EQ(topology.gpus[1].minor, 1);
  EXPECT_EQ(topology.gpu_named("GPU-4ce175fe")->address.text(), "0000:65:00.0");

  tree.describe("gpu 0000:66:00.0 0 0-9");  // held by vfio-pci, for example
  EXPECT_EQ(addresses(tree.topology()), (Names{"0000:17:00.0", "0000:65:00.0"}));
  tree.write("proc/driver/nvidia/gpus/0000:17:00.0/information",
             "GPU UUID: \t GPU-a\nDevice Minor: \t 0\nGPU Excluded:\t Yes");
  EXPECT_EQ(addresses(tree.topology()), Names{"0000:65:00.0"});
}

TEST(Machine, LeavesOutGpusWhoseDeviceFileIsHidden) {
  MachineTree tree("two-gpus-driver");
  tree.remove("dev/nvidia0");
  EXPECT_EQ(addresses(tree.topology()), Names{"0000:65:00.0"});
  tree.remove("dev/nvidia1");  // none is made yet: the driver makes them at the first use
  EXPECT_EQ(addresses(tree.topology()).size(), 2u);
}

TEST(Machine, MinorNumbersNeedNotFollowTheAddresses) {
  MachineTree tree;
  for (const char* line :
       {"gpu 0000:01:00.0 0 0-3", "gpu 0000:c1:00.0 0 0-3", "driver 0000:01:00.0 1 GPU-b",
        "driver 0000:c1:00.0 0 GPU-a", "device 0"}) {
    tree.describe(line);
  }
  EXPECT_EQ(addresses(tree.topology()), Names{"0000:c1:00.0"});
}

TEST(Machine, MissingFilesGiveNoFacts) {
  MachineTree tree;
  const Topology empty = tree.topology();
  EXPECT_TRUE(empty.gpus.empty() && empty.nodes.empty() && empty.cores.empty());

  tree.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200");
  tree.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de");
  const Topology bare = tree.topology();
  ASSERT_EQ(bare.gpus.size(), 1u);
  EXPECT_EQ(bare.gpus[0].numa_node, -1);
  EXPECT_EQ(bare.distance({0}, bare.gpus[0]), 10);
  EXPECT_TRUE(bare.cpus_near(bare.gpus[0]).empty());
}

TEST(Machine, ErrorsNameTheFile) {
  const struct {
    const char* path;
    const char* text;
    const char* reason;
  } kCases[] = {
      {"sys/bus/pci/devices/0000:21:00.0/numa_node", "x", "'x': expected a NUMA node or -1"},
      {"sys/bus/pci/devices/0000:21:00.0/numa_node", "-2", "expected a NUMA node or -1"},
      {"sys/bus/pci/devices/0000:21:00.0/local_cpulist", "0-", "'0-': expected CPU numbers"},
      {"sys/devices/system/node/node1/cpulist", "3-1", "expected CPU numbers"},
      {"sys/devices/system/node/node1/distance", "10 twelve", "expected distances"},
      {"sys/devices/system/node/node1/distance", "10 12 12", "3 distances for 2 nodes"},
      {"sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,", "expected CPU numbers"},
      {"proc/driver/nvidia/gpus/0000:21:00.0/information", "Device Minor: x",
       "Device Minor 'x': expected a number"},
      {"sys/devices/system/node/node1/cpulist", nullptr, "longer than 65536 bytes"},
  };
  for (const auto& test : kCases) {
    MachineTree tree("five-gpus");
    tree.write(test.path, test.text == nullptr ? std::string(1 << 17, '0') : test.text);
    const auto topology = read_topology(tree.root());
    ASSERT_FALSE(topology) << test.path;
    EXPECT_TRUE(topology.error().message.starts_with(tree.root() + "/" + test.path))
        << topology.error().message;
    EXPECT_NE(topology.error().message.find(test.reason), std::string::npos)
        << topology.error().message;
  }
}

TEST(Machine, AFolderWithAStrangeNameIsAnError) {
  MachineTree tree;
  tree.describe("gpu 0000:0x:00.0 0 0-3");
  const auto topology = read_topology(tree.root());
  ASSERT_FALSE(topology);
  EXPECT_NE(topology.error().message.find("'0000:0x:00.0': expected a PCI address"),
            std::string::npos);
}

TEST(Machine, ReadsThisMachine) {
  const auto machine = read_machine();
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_FALSE(machine->cpus.empty());
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(machine->cpus.size(), static_cast<std::size_t>(CPU_COUNT(&mask)));
}

}  // namespace
}  // namespace torchbridge
