#include "bridge/host/cpu_affinity.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include <gtest/gtest.h>

#include "bridge/host/read_machine.h"

namespace torchbridge {
namespace {

// The result of `body` in a child process, which may change its affinity.
bool in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

CpuSet now_allowed() {
  const auto cpus = allowed_cpus();
  return cpus ? *cpus : CpuSet();
}

TEST(SetAffinity, ConfinesTheProcessToTheCpus) {
  const CpuSet last = {now_allowed().back()};
  EXPECT_TRUE(in_child([&] { return set_affinity(last, -1) && now_allowed() == last; }));
}

TEST(SetAffinity, OutlastsExec) {
  const CpuSet last = {now_allowed().back()};
  const std::string wanted = "Cpus_allowed_list:\t" + cpu_list_text(last);
  EXPECT_TRUE(in_child([&] {
    if (!set_affinity(last, -1)) return false;
    execlp("grep", "grep", "-qx", wanted.c_str(), "/proc/self/status", nullptr);
    return false;
  }));
}

TEST(SetAffinity, PrefersTheMemoryOfTheNode) {
  int mode = 0;
  if (syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) != 0)
    GTEST_SKIP() << "this kernel has no memory policies";
  EXPECT_TRUE(in_child([&] {
    int policy = -1;
    unsigned long nodes[16] = {};
    return set_affinity({}, 0) &&
           syscall(SYS_get_mempolicy, &policy, nodes, sizeof nodes * 8, nullptr, 0) == 0 &&
           policy == MPOL_PREFERRED && nodes[0] == 1;
  }));
}

TEST(SetAffinity, LeavesTheRestUnchanged) {
  const CpuSet before = now_allowed();
  EXPECT_TRUE(in_child([&] { return set_affinity({}, -1) && now_allowed() == before; }));
}

TEST(SetAffinity, NamesMissingCpus) {
  const auto placed = set_affinity({kMaxCpu}, -1);
  ASSERT_FALSE(placed);
  EXPECT_NE(placed.error().message.find("cannot use CPUs 65535"), std::string::npos)
      << placed.error().message;
}

}  // namespace
}  // namespace torchbridge
