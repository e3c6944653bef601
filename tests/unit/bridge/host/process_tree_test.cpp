#include "bridge/host/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/growth.h"

namespace torchbridge {
namespace {

TEST(ProcessTree, BeginsWithThisProcessAndGoesUp) {
  const auto parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, "odd) S (name");
    const auto tree = this_and_ancestors();
    _exit(tree.size() > 1 && tree[0].id == getpid() && tree[0].name == "odd) S (name" &&
                  tree[1].id == parent
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// As slurmstepd of Slurm 22.05 names itself.
TEST(ProcessTree, ReadsTheStepOfSlurmstepd) {
  EXPECT_EQ(step_in_title(std::string_view("slurmstepd: [7.0]\0\0", 19)), "7.0");
  EXPECT_EQ(step_in_title("slurmstepd: [7.batch]"), "7.batch");
  for (const char* other : {"", "slurmstepd", "slurmstepd: [7.0", "bash slurmstepd: [7.0]"})
    EXPECT_EQ(step_in_title(other), "") << other;
}

TEST(ProcessTree, KnowsTheCgroupsOfSteps) {
  const std::pair<const char*, const char*> kCases[] = {
      {"8:cpu:/\n9:freezer:/slurm/uid_1000/job_5/step_0/task_1\n", "5.0"},
      {"0::/system.slice/slurmstepd.scope/job_12/step_3/user/task_0\n", "12.3"},
      {"/slurm/job_5/step_17", "5.17"},
      {"0::/system.slice/slurmstepd.scope/job_12/step_batch\n", "12.batch"},
      {"0::/slurm/job_5/step_extern/user\n", "5.extern"},
      {"0::/job_5/step_interactive/user/task_0\n", "5.interactive"},
      {"0::/slurm/job_5/step_0+1/user/task_0\n", "5.0"},
      {"0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_2/user/task_0\n", "sEKNKTV3WPV500.2"},
      {"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/job_7/step_1/user\n", "7.1"},
      {"", ""},
      {"0::/\n", ""},
      {"0::/step_1/job_5\n", ""},
      {"1:cpu:/job_5\n2:cpu:/step_1\n", ""},
      {"0::/job_5/step_", ""},
      {"0::/job_five/step_1/user\n", ""},
      {"0::/session/step_1/user\n", ""},
  };
  for (const auto& [cgroups, step] : kCases) EXPECT_EQ(step_in_cgroups(cgroups), step) << cgroups;
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

// The child has children of two threads, one of which has a child itself.
TEST(ProcessTree, FindsDescendantsButOneAndThoseBelow) {
  const auto start_waiting = [](bool has_child) {
    const pid_t process = fork();
    if (process != 0) return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (has_child && fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  };
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    start_waiting(true);
    std::thread other([&] {
      start_waiting(false);
      for (;;) pause();
    });
    other.join();
  }
  std::vector<int> found;
  while ((found = descendants_of(getpid())).size() < 4) {
  }
  const std::vector<int> below = children_of(child);
  ASSERT_EQ(below.size(), 2);
  const int parent = children_of(below[0]).empty() ? below[1] : below[0],
            childless = parent == below[0] ? below[1] : below[0];
  EXPECT_EQ(std::set(found.begin(), found.end()),
            (std::set{child, parent, childless, children_of(parent).at(0)}));
  EXPECT_EQ(descendants_of(child, parent), std::vector<int>{childless});
  EXPECT_TRUE(descendants_of(getpid(), child).empty());
  for (const int process : found) kill(process, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(descendants_of(getpid()).empty());
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

// Reading /proc takes nearly all of the time, and its length is the machine's: it is read once.
TEST(ProcessTree, CountsTheCpuTimeOfManyProcessesInOnePass) {
  std::vector<int> children(100);
  for (int& child : children) {
    child = fork();
    if (child != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  const double one = cpu_seconds([&] { (void)cpu_seconds_of({children[0]}); });
  EXPECT_LT(cpu_seconds([&] { (void)cpu_seconds_of(children); }), 10 * one);
  for (const int child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace
}  // namespace torchbridge
