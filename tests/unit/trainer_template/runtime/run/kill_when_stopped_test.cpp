#include "trainer_template/runtime/run/kill_when_stopped.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/process_state.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// A process that waits for its end, with the child that watches it.
class Watched {
 public:
  explicit Watched(milliseconds limit) {
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);  // in an orphaned process group SIGTSTP stops nothing
      kill_when_stopped(limit);
      while (true) pause();
    }
    const std::string children =
        "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children";
    while (watcher_ == 0) std::ifstream(children) >> watcher_;
  }
  ~Watched() {
    kill(pid_, SIGKILL);
    if (!has_ended_) waitpid(pid_, nullptr, 0);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  void stop() const { signal_and_wait(pid_, SIGSTOP, 'T'); }
  void stop_watcher() const { signal_and_wait(watcher_, SIGSTOP, 'T'); }
  void go_on() const { signal_and_wait(pid_, SIGCONT, 'S'); }
  void let_watcher_go_on() const { signal_and_wait(watcher_, SIGCONT, 'S'); }
  void stop_both(int number) const {
    signal_and_wait(watcher_, number, 'T');
    signal_and_wait(pid_, number, 'T');
  }
  bool watcher_is_stopped() const { return process_state(watcher_) == 'T'; }
  void end() const { kill(pid_, SIGKILL); }
  bool runs() const { return process_state(pid_) == 'S'; }
  bool watcher_runs() const { return parent_of(watcher_) == pid_; }
  // The signal that ended it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    has_ended_ = true;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  static void signal_and_wait(pid_t process, int number, char state) {
    kill(process, number);
    const auto has_ended = [process] {
      const char now = process_state(process);
      return now == 'Z' || now == 0;
    };
    while (process_state(process) != state && !has_ended()) std::this_thread::yield();
  }

  pid_t pid_, watcher_ = 0;
  bool has_ended_ = false;
};

TEST(KillWhenStopped, EndsAProcessThatIsStopped) {
  Watched watched(milliseconds(80));
  watched.stop();
  EXPECT_EQ(watched.wait(), SIGKILL);
}

// The machine stands still: both processes do, for longer than the limit.
TEST(KillWhenStopped, AMachineThatStandsStillEndsNothing) {
  constexpr milliseconds kLimit{80};
  Watched watched(kLimit);
  watched.stop_watcher();
  watched.stop();
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < 4 * kLimit) std::this_thread::yield();
  watched.go_on();
  watched.let_watcher_go_on();
  EXPECT_TRUE(watched.runs());
  EXPECT_TRUE(watched.watcher_runs());
}

// As by ctrl-Z, which stops the whole process group.
TEST(KillWhenStopped, AProcessThatIsStoppedWithItsChildGoesOn) {
  Watched watched(milliseconds(80));
  watched.stop_both(SIGTSTP);
  EXPECT_TRUE(watched.watcher_is_stopped());
  watched.let_watcher_go_on();
  EXPECT_EQ(watched.wait(), SIGKILL);  // it alone is stopped now
}

// The program's own, as in a destructor of a static object.
TEST(KillWhenStopped, TheChildIsNoneForAWaitOfTheProgram) {
  const pid_t program = fork();
  if (program == 0) {
    kill_when_stopped(std::chrono::hours(1));
    _exit(wait(nullptr) == -1 && errno == ECHILD ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(program, &status, 0), program);
  EXPECT_EQ(status, 0);
}

// A child that stayed would keep a step of Slurm.
TEST(KillWhenStopped, TheChildEndsWithTheProcess) {
  Watched watched(std::chrono::hours(1));
  EXPECT_TRUE(watched.watcher_runs());
  watched.end();
  EXPECT_EQ(watched.wait(), SIGKILL);
  while (watched.watcher_runs()) std::this_thread::yield();
}

}  // namespace
}  // namespace torchbridge::train
