#include "bridge/host/read_cpu_groups.h"

#include <gtest/gtest.h>

#include "tests/support/machine_tree.h"

namespace torchbridge {
namespace {

using Lists = std::vector<std::string>;

Lists texts(const std::vector<CpuSet>& groups) {
  Lists all;
  for (const CpuSet& group : groups) all.push_back(cpu_list_text(group));
  return all;
}

Topology groups_of(const MachineTree& tree) {
  Topology topology;
  const auto read = read_cpu_groups(tree.root(), topology);
  EXPECT_TRUE(read) << read.error().message;
  return topology;
}

TEST(CpuGroups, AreReadFromTheTree) {
  MachineTree tree;
  for (const char* line : {"socket 0 0-3,8-11", "socket 36 4-7,12-15", "cache 2 0,8",
                           "cache 3 0-1,8-9", "cache 3 2-3,10-11", "cache 3 4-7,12-15"}) {
    tree.describe(line);
  }
  const Topology topology = groups_of(tree);
  EXPECT_EQ(texts(topology.sockets), (Lists{"0-3,8-11", "4-7,12-15"}));
  EXPECT_EQ(texts(topology.caches), (Lists{"0-1,8-9", "2-3,10-11", "4-7,12-15"}));
}

TEST(CpuGroups, OfInstructionsIsNoCache) {
  MachineTree tree;
  tree.describe("cache 2 0-1");
  tree.describe("cache 3 0-3");
  for (int cpu = 0; cpu < 4; ++cpu) {
    tree.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/type",
               "Instruction");
  }
  EXPECT_EQ(texts(groups_of(tree).caches), Lists{"0-1"});
}

TEST(CpuGroups, MissingFilesGiveNone) {
  MachineTree tree;
  EXPECT_TRUE(groups_of(tree).sockets.empty());
  tree.describe("threads 0 4 0");
  // As some ARM boards show.
  tree.write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1");
  tree.write("sys/devices/system/cpu/cpufreq/boost", "1");
  EXPECT_TRUE(groups_of(tree).sockets.empty());
  EXPECT_TRUE(groups_of(tree).caches.empty());
}

TEST(CpuGroups, ErrorsNameTheFile) {
  const struct {
    const char* path;
    const char* text;
    const char* reason;
  } kCases[] = {
      {"topology/physical_package_id", "x", "'x': expected a number"},
      {"cache/index3/level", "-3", "'-3': expected a number"},
      {"cache/index3/shared_cpu_list", "0-", "'0-': expected CPU numbers"},
  };
  for (const auto& test : kCases) {
    MachineTree tree;
    tree.describe("socket 0 0-1");
    tree.describe("cache 3 0-1");
    const std::string path = std::string("sys/devices/system/cpu/cpu0/") + test.path;
    tree.write(path, test.text);
    Topology topology;
    const auto read = read_cpu_groups(tree.root(), topology);
    ASSERT_FALSE(read) << test.path;
    EXPECT_TRUE(read.error().message.starts_with(tree.root() + "/" + path + ": " + test.reason))
        << read.error().message;
  }
}

TEST(CpuGroups, AreReadFromThisMachine) {
  Topology topology;
  EXPECT_TRUE(read_cpu_groups("", topology));
}

}  // namespace
}  // namespace torchbridge
