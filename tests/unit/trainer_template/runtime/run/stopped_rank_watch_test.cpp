#include "trainer_template/runtime/run/stopped_rank_watch.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include <gtest/gtest.h>

#include "tests/support/child_ending.h"

namespace torchbridge::train {
namespace {

// Starts a process that does `work`, below another one, as a script that waits for its program.
template <class Work>
pid_t start_below_a_script(Work&& work) {
  const pid_t script = fork();
  if (script != 0) return script;
  prctl(PR_SET_NAME, "sh");  // a fork has its parent's name
  const pid_t program = fork();
  if (program == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(program, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

// As `mpirun sh -c 'program; ...'`: neither rank is a child of mpirun.
TEST(StoppedRankWatch, SeesRanksBelowScripts) {
  const auto launcher = [] {
    prctl(PR_SET_NAME, "mpirun");
    const pid_t stopped = start_below_a_script([] { raise(SIGSTOP); });
    const pid_t other = start_below_a_script([] {
      const StoppedRankWatch watch(LaunchOrigin{EnvMap()}, std::chrono::milliseconds(500));
      sleep(20);  // the watch ends the process before
    });
    int status = 0;
    waitpid(other, &status, 0);
    kill(stopped, SIGKILL);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  };
  EXPECT_EQ(ending_of_child(launcher), exited(1));
}

}  // namespace
}  // namespace torchbridge::train
