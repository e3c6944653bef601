#include "bridge/host/oom_kills.h"

#include <gtest/gtest.h>

#include "tests/support/machine_tree.h"

namespace torchbridge {
namespace {

TEST(OomKills, AreReadFromTheKernelsCounters) {
  MachineTree machine;
  EXPECT_EQ(oom_kills(machine.root()), 0) << "no such file";
  machine.write("proc/vmstat", "nr_free_pages 7\noom_kill 12\noom_kill_x 3");
  EXPECT_EQ(oom_kills(machine.root()), 12);
  machine.write("proc/vmstat", "oom_kill 4\npgfault 9");
  EXPECT_EQ(oom_kills(machine.root()), 4);
  machine.write("proc/vmstat", "not_oom_kill 5");
  EXPECT_EQ(oom_kills(machine.root()), 0) << "an older kernel";
}

}  // namespace
}  // namespace torchbridge
