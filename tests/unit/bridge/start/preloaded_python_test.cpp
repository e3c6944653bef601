#include "bridge/start/preloaded_python.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

// A Python that has imported `modules`, and runs the script.
class PreloadedPythonTest : public testing::Test {
 protected:
  PreloadedPythonTest() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    spec_.environment = EnvMap::from(environ);
    getrlimit(RLIMIT_NOFILE, &spec_.outer.descriptors);
    sigemptyset(&spec_.outer.signal_mask);
  }

  void write_script(const std::string& text) {
    folder_.write("script.py", text);
    spec_.command = {"python3", "-u", folder_ / "script.py"};
  }

  // Until it has answered.
  static void wait_for(PreloadedPython& python) {
    python.ask();
    while (python.is_asked()) {
      pollfd entry{python.descriptor(), POLLIN, 0};
      ASSERT_GT(poll(&entry, 1, 60'000), 0);
      python.carry();
    }
  }

  // What the worker prints.
  std::string output_of(PreloadedPython& python) {
    const Socket file(
        open((folder_ / "out").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
    spec_.standard_output = file.descriptor();
    const auto started = python.start(spec_);
    if (!std::holds_alternative<pid_t>(started)) return "not started";
    int status = 0;
    EXPECT_EQ(waitpid(std::get<pid_t>(started), &status, 0), std::get<pid_t>(started));
    EXPECT_EQ(status, 0);
    return folder_.read("out");
  }

  TemporaryFolder folder_;
  ProcessSpec spec_;
};

TEST_F(PreloadedPythonTest, ForksAWorkerThatIsAChildWithItsOwnArgumentsAndEnvironment) {
  write_script("");
  spec_.command.push_back("first");
  PreloadedPython python({"json"}, spec_);
  wait_for(python);
  EXPECT_EQ(python.take_message(), "");
  write_script("import os, sys\nprint(sys.argv[1:], len(os.environ['OWN']), os.getppid() == " +
               std::to_string(getpid()) + ", 'json' in sys.modules)\n");
  spec_.command.push_back("second");
  spec_.environment.set("OWN", std::string(300'000, 'x'));  // longer than a message
  EXPECT_EQ(output_of(python), "['second'] 300000 True True\n");
}

TEST_F(PreloadedPythonTest, BindsAWorkerToItsCpus) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) last = CPU_ISSET(cpu, &allowed) ? cpu : last;
  write_script("import os\nprint(os.sched_getaffinity(0))\n");
  PreloadedPython python({"json"}, spec_);
  wait_for(python);
  spec_.cpus = {last};
  EXPECT_EQ(output_of(python), "{" + std::to_string(last) + "}\n");
}

TEST_F(PreloadedPythonTest, StartsAWorkerByItselfWhereItIsNotReady) {
  write_script("import sys\nprint('json' in sys.modules)\n");
  PreloadedPython python({"no_such_module"}, spec_);
  wait_for(python);
  EXPECT_NE(python.take_message().find("module 'no_such_module' cannot be imported"),
            std::string::npos);
  EXPECT_EQ(python.pid(), 0);
  EXPECT_EQ(output_of(python), "False\n");
}

TEST_F(PreloadedPythonTest, EndsWithTheObject) {
  write_script("");
  int pid = 0;
  {
    PreloadedPython python({"json"}, spec_);
    pid = python.pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
  // What it had started, as the commands of a script in front of Python, was killed with it.
  alarm(60);
  while (waitpid(-1, nullptr, 0) > 0) continue;
  alarm(0);
}

}  // namespace
