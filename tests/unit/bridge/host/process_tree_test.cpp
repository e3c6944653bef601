#include "bridge/host/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(ProcessTree, BeginsWithThisProcessAndGoesUp) {
  const auto parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, "odd) S (name");
    const auto tree = this_and_ancestors();
    _exit(tree.size() > 1 && tree[0].id == getpid() && tree[0].name == "odd) S (name" && tree[1].id == parent ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace torchbridge
