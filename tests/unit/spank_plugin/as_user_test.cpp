#include "spank_plugin/as_user.h"

#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

constexpr std::chrono::milliseconds kLimit{3000};

bool run(const std::function<bool()>& act) {
  return run_as_user({geteuid(), getegid()}, kLimit, act);
}

TEST(RunAsUser, ReturnsTheResult) {
  EXPECT_TRUE(run([] { return true; }));
  EXPECT_FALSE(run([] { return false; }));
  EXPECT_FALSE(run([]() -> bool { throw std::runtime_error("never mind"); }));
  EXPECT_FALSE(run([]() -> bool { abort(); }));
}

// As in a process that ignores SIGCHLD: the kernel then keeps no status.
TEST(RunAsUser, TakesNoChildThatItCannotWaitForAsASuccess) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  EXPECT_FALSE(run([] { return false; }));
  signal(SIGCHLD, before);
}

TEST(RunAsUser, HasTheUsersRights) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr gid_t kGroup = 65532;
  std::vector<gid_t> before(static_cast<std::size_t>(getgroups(0, nullptr)));
  ASSERT_EQ(getgroups(static_cast<int>(before.size()), before.data()), before.size());
  ASSERT_EQ(setgroups(1, &kGroup), 0);  // as root's own, of which the user must have none
  EXPECT_TRUE(run_as_user({65534, 65533}, kLimit, [] {
    return geteuid() == 65534 && getegid() == 65533 && getgroups(0, nullptr) == 0 && setuid(0) != 0;
  }));
  EXPECT_EQ(setgroups(before.size(), before.data()), 0);
}

// Slurmstepd's memory: neither for the user's debugger nor in a core file.
TEST(RunAsUser, CannotBeTracedOrDumped) {
  EXPECT_TRUE(run([] { return prctl(PR_GET_DUMPABLE) == 0; }));
}

TEST(RunAsUser, HasABoundOfMemory) {
  EXPECT_TRUE(run([] {
    rlimit limit{};
    return getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           limit.rlim_max == limit.rlim_cur;
  }));
}

// The user may stop the child, which has the user's rights.
TEST(RunAsUser, DoesNotWaitForAStoppedChild) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(run([] { return raise(SIGSTOP) == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(6));
}

// Holds a process that the kernel cannot end, like one that reads from a server that is gone.
class FrozenGroup {
 public:
  FrozenGroup() { exists_ = mkdir(path_.c_str(), 0700) == 0 && write("freezer.state", "THAWED"); }
  ~FrozenGroup() {
    if (!exists_) return;
    write("freezer.state", "THAWED");
    while (rmdir(path_.c_str()) != 0 && errno == EBUSY)
      poll(nullptr, 0, 5);  // until the process is gone
  }
  bool exists() const { return exists_; }
  // Returns only after the group is thawed.
  void freeze_this_process() const {
    write("cgroup.procs", std::to_string(getpid()));
    write("freezer.state", "FROZEN");
    poll(nullptr, 0, -1);
  }

 private:
  bool write(const std::string& file, const std::string& text) const {
    return static_cast<bool>(std::ofstream(path_ + "/" + file) << text << std::flush);
  }

  std::string path_ = "/sys/fs/cgroup/freezer/torchbridge-" + std::to_string(getpid());
  bool exists_ = false;
};

TEST(RunAsUser, DoesNotWaitForAChildThatTheKernelCannotEnd) {
  const FrozenGroup group;
  if (!group.exists()) GTEST_SKIP() << "this user cannot make a freezer cgroup of version 1";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(run([&] { return group.freeze_this_process(), true; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(7));
}

}  // namespace
}  // namespace torchbridge
