#include "bridge/host/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

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

TEST(ProcessTree, FindsChildrenThatRunAndThatHaveEnded) {
  const pid_t sleeping = fork();
  if (sleeping == 0) pause();
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT), 0);
  auto children = children_of(getpid());
  std::sort(children.begin(), children.end());
  EXPECT_EQ(children, (std::vector<int>{std::min(sleeping, ended), std::max(sleeping, ended)}));
  kill(sleeping, SIGKILL);
  waitpid(sleeping, nullptr, 0);
  waitpid(ended, nullptr, 0);
  EXPECT_TRUE(children_of(getpid()).empty());
}

// A process may end between the listing of /proc, the opening of its file and the reading.
TEST(ProcessTree, LooksThroughProcessesThatEnd) {
  const pid_t busy = fork();
  if (busy == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      const pid_t brief = fork();
      if (brief == 0) _exit(0);
      waitpid(brief, nullptr, 0);
    }
  }
  for (int i = 0; i < 400; ++i) ASSERT_EQ(children_of(getpid()), std::vector<int>{busy});
  kill(busy, SIGKILL);
  waitpid(busy, nullptr, 0);
}

TEST(ProcessTree, CountsTheCpuTimeOfDescendants) {
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      for (volatile bool is_on = true; is_on;) {
      }
    }
    pause();
  }
  while (cpu_seconds_of({child}) < 0.05) {
  }
  for (const int grandchild : children_of(child)) kill(grandchild, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(cpu_seconds_of({child}), 0);
}

}  // namespace
}  // namespace torchbridge
