// torchbridge run with real workers that fail, hang, ignore signals and are killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bridge/host/process_tree.h"
#include "bridge/net/socket.h"
#include "tests/support/child_process.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/process_state.h"
#include "tests/support/temporary_folder.h"

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Words sorted(Words words) {
  std::sort(words.begin(), words.end());
  return words;
}

// A run of shell scripts, each with the test's folder in $F.
class Agent {
 public:
  explicit Agent(const Words& options, const std::string& script, const Variables& more = {})
      : process_(command(options, {"sh", "-c", script}), variables(more), folder_ / "agent") {}
  Agent(const Words& options, const Words& program, const Variables& more = {})
      : process_(command(options, program), variables(more), folder_ / "agent") {}

  int wait(seconds time = seconds(60)) { return process_.wait(time); }
  bool has_ended() { return process_.ended(); }
  void signal(int number) const { process_.signal(number); }
  int pid() const { return process_.pid(); }
  std::string out() const { return process_.out(); }
  std::string error() const { return process_.error(); }

  // Files of the test's folder, which workers and the test write to tell each other of facts.
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name) const { folder_.write(name, ""); }
  std::string read(const std::string& name) const { return folder_.read(name); }
  bool appears(const std::string& name) const {
    return eventually([&] { return std::filesystem::exists(folder_ / name); });
  }
  // The process whose id a worker has written, whole, into the file.
  int pid_in(const std::string& name) const {
    EXPECT_TRUE(eventually([&] { return read(name).ends_with('\n'); })) << name;
    return std::atoi(read(name).c_str());
  }

 private:
  static Words command(const Words& options, const Words& program) {
    Words words = {in_build("bin/torchbridge"), "run"};
    if (getenv("AGENT_PRELOAD")) words.insert(words.end(), {"--preload", "json"});
    words.insert(words.end(), options.begin(), options.end());
    if (getenv("AGENT_PRELOAD")) words.push_back(in_source("tests/programs/become_arguments.py"));
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
  Variables variables(const Variables& more) const {
    Variables all = {{"F", folder_.path()}, {"TMPDIR", folder_.path()}};
    for (const auto& [name, value] : more) all[name] = value;
    return all;
  }

  TemporaryFolder folder_;
  Process process_;
};

bool ends(int pid) {
  return eventually([&] { return kill(pid, 0) != 0 || process_state(pid) == 'Z'; });
}

// Rank 1 waits for the file `go` of the folder, the others for more than the test.
constexpr char kUntilGo[] = "while [ ! -e $F/go ]; do sleep 0.01; done;";

TEST(AgentRun, GivesWorkersTheirRanksAndOnePort) {
  Agent agent({"--nproc-per-node", "3"},
              "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  const Words lines = sorted(lines_of(agent.out()));
  ASSERT_EQ(lines.size(), 3u);
  const std::string port = lines[0].substr(lines[0].rfind(' '));
  EXPECT_EQ(lines, (Words{"0 0 3 3 127.0.0.1" + port, "1 1 3 3 127.0.0.1" + port,
                          "2 2 3 3 127.0.0.1" + port}));
  EXPECT_EQ(agent.error(), "");
}

TEST(AgentRun, PassesArgumentsByteForByte) {
  const Words arguments = {"$$", "a b",      "'\"\\", "line\nline",
                           "",   "--nnodes", "-r",    std::string(100000, 'x')};
  Words program = {"/usr/bin/printf", "%s|"};
  program.insert(program.end(), arguments.begin(), arguments.end());
  program.push_back("${local_rank}");
  Agent agent({}, program);
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  std::string expected;
  for (const std::string& argument : arguments) expected += argument + "|";
  EXPECT_EQ(agent.out(), expected + "0|");
}

TEST(AgentRun, ReservesAPortThatNoOtherRunHas) {
  constexpr int kRuns = 100;
  std::vector<std::unique_ptr<Agent>> agents;
  for (int i = 0; i < kRuns; ++i) {
    agents.push_back(std::make_unique<Agent>(
        Words{"--standalone"}, "mkfifo $F/go; echo $MASTER_PORT; touch $F/up; : < $F/go"));
  }
  for (const auto& agent : agents) ASSERT_TRUE(agent->appears("up"));
  std::set<std::string> ports;
  for (const auto& agent : agents) {
    agent->write("go");
    EXPECT_EQ(agent->wait(), 0) << agent->error();
    ports.insert(agent->out());
  }
  EXPECT_EQ(ports.size(), static_cast<std::size_t>(kRuns));
}

TEST(AgentRun, LetsRankZeroListenOnThePort) {
  // Python's store binds all interfaces, with SO_REUSEADDR; a program that can take the socket
  // inherits it.
  Agent agent({},
              Words{"/usr/bin/python3", "-c",
                    "import os, socket\n"
                    "port = int(os.environ['MASTER_PORT'])\n"
                    "inherited = socket.socket(fileno=int(os.environ['TORCHBRIDGE_LISTEN_FD']))\n"
                    "assert inherited.getsockname()[1] == port\n"
                    "store = socket.create_server(('', port), reuse_port=False)\n"
                    "socket.create_connection(('127.0.0.1', port))\n"
                    "store.accept()\n"});
  EXPECT_EQ(agent.wait(), 0) << agent.error();
}

TEST(AgentRun, EndsWithTheCodeOfItsRootCause) {
  const struct {
    Words program;
    int code;
    std::string error;
  } cases[] = {
      {{"true"}, 0, ""},
      {{"sh", "-c", "exit 3"}, 3, "exit code 3"},
      {{"sh", "-c", "kill -SEGV $$"}, 139, "killed by signal 11 (Segmentation fault)"},
      {{"sh", "-c", "kill -9 $$"}, 137, "killed by signal 9 (Killed)"},
      {{"./missing"}, 127, "cannot run './missing': No such file or directory"},
      {{"/etc"}, 126, "cannot run '/etc': Permission denied"},
  };
  for (const auto& c : cases) {
    Agent agent({"--nproc-per-node", "2"}, c.program);
    EXPECT_EQ(agent.wait(), c.code) << agent.error();
    EXPECT_NE(agent.error().find(c.error), std::string::npos) << agent.error();
  }
}

TEST(AgentRun, RestartsTheWholeGroupWithAnotherPort) {
  Agent agent(
      {"--nproc-per-node", "2", "--max-restarts", "3"},
      "echo $TORCHELASTIC_RESTART_COUNT $MASTER_PORT; touch "
      "$F/up.$TORCHELASTIC_RESTART_COUNT.$RANK;"
      "[ $RANK = 0 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] || { [ $RANK = 0 ] && exit 0; "
      "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; sleep 60; };"
      "while [ ! -e $F/up.$TORCHELASTIC_RESTART_COUNT.1 ]; do sleep 0.01; done; exit 7");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  const Words lines = sorted(lines_of(agent.out()));
  ASSERT_EQ(lines.size(), 6u) << agent.out();
  std::set<std::string> ports;
  for (std::size_t i = 0; i < 6; i += 2) {
    EXPECT_EQ(lines[i], lines[i + 1]);
    EXPECT_EQ(lines[i].substr(0, 2), std::to_string(i / 2) + " ");
    ports.insert(lines[i].substr(2));
  }
  EXPECT_EQ(ports.size(), 3u);
  EXPECT_NE(agent.error().find("restart 2 of 3"), std::string::npos) << agent.error();
}

TEST(AgentRun, PassesOnThatWorkersWantToBeRequeued) {
  Agent agent({"--nproc-per-node", "2", "--max-restarts", "3"}, "echo once; exit 75");
  EXPECT_EQ(agent.wait(), 75) << agent.error();
  EXPECT_EQ(agent.out(), "once\nonce\n");
}

TEST(AgentRun, LetsTheOthersFinishTheirCheckpointWhenOneWantsToBeRequeued) {
  Agent agent({"--nproc-per-node", "2"},
              "[ $RANK = 1 ] && { touch $F/ended; exit 75; };"
              "while [ ! -e $F/go ]; do sleep 0.01; done; echo saved; exit 75");
  ASSERT_TRUE(agent.appears("ended"));
  agent.write("go");
  EXPECT_EQ(agent.wait(), 75) << agent.error();
  EXPECT_EQ(agent.out(), "saved\n");
}

TEST(AgentRun, EndsACrashLoopEarly) {
  Agent agent({"--max-restarts", "50"}, "echo once; exit 9");
  EXPECT_EQ(agent.wait(), 9);
  EXPECT_EQ(agent.out(), "once\nonce\nonce\n");
  EXPECT_NE(agent.error().find("not restarted: the same failure 3 times in a row"),
            std::string::npos)
      << agent.error();
}

// The worker's own child leaves its session, and is found all the same.
constexpr char kWithGrandchild[] =
    "echo $$ > $F/worker.$RANK; setsid sh -c 'echo $$ > $F/grandchild.$RANK; exec sleep 600' & "
    "wait";

TEST(AgentRun, LeavesNothingBehindWhenItIsKilled) {
  for (const bool is_guardian : {true, false}) {
    Agent agent({"--nproc-per-node", "2"}, kWithGrandchild);
    const int pids[] = {agent.pid_in("worker.0"), agent.pid_in("worker.1"),
                        agent.pid_in("grandchild.0"), agent.pid_in("grandchild.1")};
    const int inner = parent_of(pids[0]);
    EXPECT_EQ(parent_of(inner), agent.pid());
    kill(is_guardian ? agent.pid() : inner, SIGKILL);
    for (const int pid : pids)
      EXPECT_TRUE(ends(pid)) << pid << " of the run whose guardian was killed: " << is_guardian;
    EXPECT_TRUE(ends(inner));
    EXPECT_EQ(agent.wait(), 137);
    EXPECT_EQ(agent.error().find("the agent (pid") != std::string::npos, !is_guardian)
        << agent.error();
  }
}

TEST(AgentRun, EndsWhatAFailedWorkerLeaves) {
  Agent agent({},
              "setsid sh -c 'echo $$ > $F/grandchild; exec sleep 600' &"
              "while [ ! -s $F/grandchild ]; do sleep 0.01; done; exit 1");
  const int grandchild = agent.pid_in("grandchild");
  EXPECT_EQ(agent.wait(), 1);
  EXPECT_TRUE(kill(grandchild, 0) != 0 || process_state(grandchild) == 'Z');
}

TEST(AgentRun, LeavesAloneWhatASuccessfulWorkerLeaves) {
  Agent agent({},
              "setsid sh -c 'echo $$ > $F/grandchild; exec sleep 600' &"
              "while [ ! -s $F/grandchild ]; do sleep 0.01; done; exit 0");
  const int grandchild = agent.pid_in("grandchild");
  EXPECT_EQ(agent.wait(), 0);
  EXPECT_EQ(kill(grandchild, SIGKILL), 0);
}

TEST(AgentRun, PassesASignalOnAndLeavesGrace) {
  Agent agent({"--nproc-per-node", "2"},
              "trap 'echo saved; exit 75' TERM; touch $F/up.$RANK; while :; do sleep 0.01; done");
  ASSERT_TRUE(agent.appears("up.0") && agent.appears("up.1"));
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait(), 75) << agent.error();
  EXPECT_EQ(agent.out(), "saved\nsaved\n");
}

TEST(AgentRun, IsNeverSuccessfulAfterASignal) {
  Agent agent({"--max-restarts", "3"},
              "trap 'exit 0' TERM; touch $F/up; while :; do sleep 0.01; done");
  ASSERT_TRUE(agent.appears("up"));
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait(), 143) << agent.error();
}

TEST(AgentRun, KillsAfterTheGraceWhatIgnoresTheSignal) {
  Agent agent({"--grace", "0.2", "--nproc-per-node", "2"},
              "trap '' TERM; touch $F/up.$RANK; while :; do sleep 0.01; done");
  ASSERT_TRUE(agent.appears("up.0") && agent.appears("up.1"));
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait(), 143) << agent.error();
  EXPECT_NE(agent.error().find("workers still running 0.2 s after the signal get SIGKILL"),
            std::string::npos)
      << agent.error();
}

TEST(AgentRun, KillsAtTheSecondInterrupt) {
  Agent agent({"--grace", "600"},
              "trap 'touch $F/interrupted' INT; touch $F/up; while :; do sleep 0.01; done");
  ASSERT_TRUE(agent.appears("up"));
  agent.signal(SIGINT);
  ASSERT_TRUE(agent.appears("interrupted"));
  ASSERT_TRUE(eventually([&] {
    agent.signal(SIGINT);
    return agent.has_ended();
  }));
  EXPECT_EQ(agent.wait(), 130) << agent.error();
}

// The checkpoint of a worker is not lost where `timeout -s INT` signals its child and then the
// child's group.
TEST(AgentRun, InterruptsWithinASecondAreOne) {
  Agent agent({"--grace", "600"},
              "trap 'touch $F/saving; while [ ! -e $F/go ]; do sleep 0.01; done; exit 75' INT;"
              "trap 'touch $F/go' USR1; touch $F/up; while :; do sleep 0.01; done");
  ASSERT_TRUE(agent.appears("up"));
  agent.signal(SIGINT);
  ASSERT_TRUE(agent.appears("saving"));
  agent.signal(SIGINT);
  agent.signal(SIGUSR1);  // the agent reads it after the other
  EXPECT_EQ(agent.wait(), 75) << agent.error();
}

// A launcher sends a signal to all processes of a task, and may send it again: also while the agent
// ends.
TEST(AgentRun, SignalsAtItsEndDoNotChangeTheExitCode) {
  for (int i = 0; i < 20; ++i) {
    Agent agent({}, "trap 'exit 75' TERM; touch $F/up; while :; do sleep 0.01; done");
    ASSERT_TRUE(agent.appears("up"));
    const std::vector<int> below_guardian = torchbridge::children_of(agent.pid());
    ASSERT_EQ(below_guardian.size(), 1u);
    while (!agent.has_ended()) {
      agent.signal(SIGTERM);
      kill(below_guardian.front(), SIGTERM);
    }
    EXPECT_EQ(agent.wait(), 75) << agent.error();
  }
}

TEST(AgentRun, PassesUserSignalsToWorkersAndRunsOn) {
  Agent agent({}, "trap 'touch $F/got; exit 0' USR1; touch $F/up; while :; do sleep 0.01; done");
  ASSERT_TRUE(agent.appears("up"));
  agent.signal(SIGUSR1);
  EXPECT_TRUE(agent.appears("got"));
  EXPECT_EQ(agent.wait(), 0) << agent.error();
}

// Sends a signal to processes in this order, as a process with the name of Slurm's step daemon.
class StepDaemon {
 public:
  StepDaemon(const Agent& agent, const std::string& signal, const std::vector<int>& processes)
      : process_(command(agent, signal, processes), {{"F", (agent / "").string()}},
                 agent / ("daemon." + signal)) {}

 private:
  static Words command(const Agent& agent, const std::string& signal,
                       const std::vector<int>& processes) {
    const std::filesystem::path script = agent / "slurmstepd";
    if (!std::filesystem::exists(script))
      std::ofstream(script)
          << "#!/bin/sh\nkill -s \"$@\"\nwhile [ -e $F/slurmstepd ]; do sleep 0.01; done\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    Words words = {script.string(), signal};
    for (const int process : processes) words.push_back(std::to_string(process));
    return words;
  }
  Process process_;
};

// Prints each signal that it gets, and ends at SIGUSR2.
constexpr char kSignalPrinter[] =
    "import os, signal\n"
    "handled = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, handled)\n"
    "with open(os.environ['F'] + '/pid.' + os.environ['RANK'], 'w') as file: print(os.getpid(), "
    "file=file)\n"
    "number = None\n"
    "while number != signal.SIGUSR2:\n"
    "    number = signal.sigwait(handled)\n"
    "    os.write(1, (signal.Signals(number).name + '\\n').encode())\n"
    "os._exit(75)\n";

TEST(AgentRun, AWorkerGetsASignalOnceThatSlurmGivesToEachProcess) {
  for (const std::string name : {"USR1", "INT", "TERM"}) {
    for (const bool workers_first : {true, false}) {
      Agent agent({"--nproc-per-node", "2"}, Words{"/usr/bin/python3", "-c", kSignalPrinter});
      const int workers[] = {agent.pid_in("pid.0"), agent.pid_in("pid.1")};
      std::vector<int> processes = {workers[0], workers[1], parent_of(workers[0]), agent.pid()};
      if (!workers_first) std::reverse(processes.begin(), processes.end());
      const StepDaemon daemon(agent, name, processes);
      // This one reaches the guardian alone, as with `scancel --batch`, and is passed on after the
      // first.
      ASSERT_TRUE(eventually([&] { return lines_of(agent.out()).size() >= 2; })) << agent.error();
      const StepDaemon last(agent, "USR2", {agent.pid()});
      EXPECT_EQ(agent.wait(), 75) << agent.error();
      EXPECT_EQ(sorted(lines_of(agent.out())),
                (Words{"SIG" + name, "SIG" + name, "SIGUSR2", "SIGUSR2"}))
          << "workers first: " << workers_first;
    }
  }
}

// A worker has a helper that saves what it has, and may get the signal before the agent does.
TEST(AgentRun, LeavesGraceToHelpersOfAWorkerThatASignalEndedBeforeTheAgentGotIt) {
  Agent agent({},
              "sh -c 'trap \"touch $F/saving; while [ ! -e $F/go ]; do sleep 0.01; done; touch "
              "$F/saved; exit\" TERM;"
              "echo $$ >$F/helper; while :; do sleep 0.01; done' & echo $$ >$F/worker; wait");
  const int helper = agent.pid_in("helper"), worker = agent.pid_in("worker"),
            inner = parent_of(worker);
  kill(helper, SIGTERM);
  ASSERT_TRUE(agent.appears("saving"));
  kill(worker, SIGTERM);
  ASSERT_TRUE(ends(worker));
  kill(inner, SIGTERM);
  EXPECT_TRUE(eventually([&] { return contains(agent.error(), "SIGTERM: passed to the workers"); }))
      << agent.error();
  agent.write("go");
  EXPECT_EQ(agent.wait(), 128 + SIGTERM) << agent.error();
  EXPECT_TRUE(std::filesystem::exists(agent / "saved")) << agent.error();
  EXPECT_FALSE(contains(agent.error(), "killed by signal")) << agent.error();
}

// Whether the kernel has the signal for the process, which has not read it yet.
bool is_pending(int pid, int signal) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("ShdPnd:"))
      return (std::stoull(line.substr(line.find('\t')), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

// `scancel` again, or the time limit after `--signal=TERM@60`: only ctrl-C ends the wait.
TEST(AgentRun, ASecondSigtermLeavesGraceToHelpersOfAWorker) {
  Agent agent(
      {},
      "sh -c 'trap \"while [ ! -e $F/go ]; do sleep 0.01; done; touch $F/saved; exit\" TERM;"
      "touch $F/helper; while :; do sleep 0.01; done' & echo $$ >$F/worker; wait");
  ASSERT_TRUE(agent.appears("helper"));
  const int inner = parent_of(agent.pid_in("worker"));
  agent.signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return contains(agent.error(), "still run that the workers"); }))
      << agent.error();
  kill(inner, SIGTERM);
  EXPECT_TRUE(eventually([&] { return !is_pending(inner, SIGTERM); }));
  agent.write("go");
  EXPECT_EQ(agent.wait(), 128 + SIGTERM) << agent.error();
  EXPECT_TRUE(std::filesystem::exists(agent / "saved")) << agent.error();
}

TEST(AgentRun, NamesProcessesThatAWorkerLeavesAfterASignal) {
  Agent agent({"--grace", "3"},
              "setsid sh -c 'echo $$ > $F/grandchild; exec sleep 600' &"
              "while [ ! -s $F/grandchild ]; do sleep 0.01; done; exec sleep 600");
  const int grandchild = agent.pid_in("grandchild");
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait(), 128 + SIGTERM) << agent.error();
  EXPECT_TRUE(contains(agent.error(), "still run that the workers started: sleep (pid " +
                                          std::to_string(grandchild) +
                                          "): they get SIGKILL 3 s after the signal (--grace)"))
      << agent.error();
}

TEST(AgentRun, EndsTheRunAtSignalsToHandle) {
  Agent agent({"--signals-to-handle", "SIGUSR1"},
              "trap 'exit 75' USR1; touch $F/up; while :; do sleep 0.01; done");
  ASSERT_TRUE(agent.appears("up"));
  agent.signal(SIGUSR1);
  EXPECT_EQ(agent.wait(), 75) << agent.error();
}

TEST(AgentRun, ForwardsEverySignalToHandle) {
  for (const auto& [name, number] :
       {std::pair("SIGALRM", SIGALRM), std::pair("SIGQUIT", SIGQUIT)}) {
    const std::string trap = std::string(name).substr(3);
    Agent agent({"--signals-to-handle", name},
                "trap 'exit 75' " + trap + "; touch $F/up; while :; do sleep 0.01; done");
    ASSERT_TRUE(agent.appears("up"));
    agent.signal(number);
    EXPECT_EQ(agent.wait(), 75) << name << agent.error();
  }
}

TEST(AgentRun, TakesTheStoresAddressFromTheOptions) {
  const std::string port = std::to_string(free_port());
  const struct {
    Words options;
    std::string expected;
  } cases[] = {
      {{"--master-port", port}, "127.0.0.1 " + port},
      {{"--master-addr", "localhost", "--master-port=" + port}, "127.0.0.1 " + port},
      {{"--rdzv-endpoint", "127.0.0.1:" + port}, "127.0.0.1 " + port},
      {{"--master-addr", "[::1]", "--master-port=" + port}, "::1 " + port},
  };
  for (const auto& c : cases) {
    Agent agent(c.options, "echo $MASTER_ADDR $MASTER_PORT");
    EXPECT_EQ(agent.wait(), 0) << agent.error();
    EXPECT_EQ(agent.out(), c.expected + "\n");
  }
}

TEST(AgentRun, RejectsOptionsBeforeAWorkerStarts) {
  const TemporaryFolder folder;
  folder.write("file", "");
  const auto listener = torchbridge::listen_on({"127.0.0.1", 0});
  const std::string used = std::to_string(*torchbridge::bound_port(*listener));
  const struct {
    Words options;
    std::string error;
  } cases[] = {
      {{"--master-port", used}, "--master-port " + used + " is in use"},
      {{"--master-addr", "192.0.2.1"}, "--master-addr 192.0.2.1 is not an address of"},
      {{"--log-dir", folder / "file"}, "cannot create"},
      {{"--nnodes", "1:2"}, "--nnodes MIN:MAX needs --rdzv-backend c10d"},
      {{"--nnodes", "2", "--node-rank", "2"},
       "--node-rank 2: expected a number below 2 (--nnodes)"},
      {{"--nnodes", "2", "--master-addr", "192.0.2.1"}, "192.0.2.1 is not an address of"},
      {{"--nnodes", "2:3", "--rdzv-backend", "c10d", "--active", "4"},
       "--active 4: expected a number from 2 to 3"},
      {{"--node-rank", "1"}, "--node-rank 1: expected 0"},
      {{"--nproc-per-node", "gpu"}, "--nproc-per-node gpu: this process sees no GPU"},
      {{"--numa-binding", "node"}, "--numa-binding"},
  };
  for (const auto& c : cases) {
    Agent agent(c.options, "echo started", {{"CUDA_VISIBLE_DEVICES", ""}});
    EXPECT_NE(agent.wait(), 0);
    EXPECT_EQ(agent.out(), "");
    EXPECT_TRUE(contains(agent.error(), c.error));
    EXPECT_EQ(lines_of(agent.error()).size(), 1u) << agent.error();
  }
}

TEST(AgentRun, IsNotStartedInEachOfSeveralTasks) {
  const Variables tasks = {{"OMPI_COMM_WORLD_RANK", "0"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "0"},  {"OMPI_UNIVERSE_SIZE", "2"}};
  Agent agent({"--nnodes", "1"}, "echo started", tasks);
  EXPECT_EQ(agent.wait(), 1);
  EXPECT_TRUE(
      contains(agent.error(),
               "torchbridge: this is one of 2 tasks, and with --nnodes 1 each would run a job"));
  EXPECT_EQ(agent.out(), "");
  Agent separate({"--standalone"}, "echo $WORLD_SIZE", tasks);
  EXPECT_EQ(separate.wait(), 0) << separate.error();
  EXPECT_EQ(separate.out(), "1\n");
}

TEST(AgentRun, CopiesTheLinesThatFiltersName) {
  const TemporaryFolder logs;
  Agent agent({"--nproc-per-node", "2", "--log-dir", logs.path(), "--tee", "3",
               "--duplicate-stdout-filters", "apple,pear", "--duplicate-stderr-filters", "plum"},
              "echo an apple $RANK; echo a plum; echo a plum $RANK >&2; echo a pear >&2");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  std::filesystem::path run;
  for (const auto& entry : std::filesystem::directory_iterator(logs.path())) run = entry.path();
  const std::string attempt = run.filename().string() + "/attempt_0/";
  EXPECT_EQ(sorted(lines_of(logs.read(attempt + "filtered_stdout.log"))),
            (Words{"[default0]:an apple 0", "[default1]:an apple 1"}));
  EXPECT_EQ(sorted(lines_of(logs.read(attempt + "filtered_stderr.log"))),
            (Words{"[default0]:a plum 0", "[default1]:a plum 1"}));
}

TEST(AgentRun, TellsFailuresFromTheirConsequences) {
  const TemporaryFolder folder;
  Agent agent({"--nproc-per-node", "3", "--json-summary", folder / "summary.json"},
              "touch $F/up.$RANK; while [ ! -e $F/up.0 -o ! -e $F/up.1 -o ! -e $F/up.2 ]; do sleep "
              "0.01; done;"
              "[ $RANK = 1 ] && exit 3; exec sleep 600",
              {{"TORCHELASTIC_ERROR_FILE", folder / "own_error.json"}});
  EXPECT_EQ(agent.wait(), 3);
  EXPECT_TRUE(contains(agent.error(), "torchbridge: sh failed after 1 attempt, "));
  EXPECT_TRUE(contains(agent.error(), "ended because of it: ranks 0, 2"));
  const auto failures =
      nlohmann::json::parse(folder.read("summary.json"))["attempts"][0]["failures"];
  ASSERT_EQ(failures.size(), 3u);
  EXPECT_EQ(failures[0]["ended_by_agent"], false);
  EXPECT_EQ(failures[1]["ended_by_agent"], true);
  EXPECT_EQ(failures[1]["signal"], SIGTERM);
  // The worker gave no reason: there is none to pass on.
  EXPECT_FALSE(std::filesystem::exists(folder / "own_error.json"));
}

TEST(AgentRun, GoesOnWithoutALogWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  Process probe({"/usr/bin/unshare", "--mount", "true"}, {}, folder / "probe");
  if (probe.wait(seconds(30)) != 0) GTEST_SKIP() << "no right to mount here";
  const std::string script = "mount -t tmpfs -o size=64k none " + folder.path().string() +
                             "/disk && exec " + in_build("bin/torchbridge") + " run --log-dir " +
                             folder.path().string() +
                             "/disk --tee 1 sh -c 'yes | head -c 200000; echo; echo end'";
  std::filesystem::create_directory(folder / "disk");
  Process agent({"/usr/bin/unshare", "--mount", "sh", "-c", script}, {}, folder / "agent");
  EXPECT_EQ(agent.wait(seconds(30)), 0) << agent.error();
  EXPECT_TRUE(
      contains(agent.error(),
               "the stdout of rank 0 is no longer written to its log: No space left on device"));
  EXPECT_TRUE(agent.out().ends_with("[default0]:end\n"));
}

TEST(AgentRun, SurvivesTheTerminalUnderNohup) {
  Agent agent({}, "touch $F/up; " + std::string(kUntilGo));
  ASSERT_TRUE(agent.appears("up"));
  agent.signal(SIGHUP);
  EXPECT_EQ(agent.wait(), 129) << agent.error();

  const TemporaryFolder folder;
  Process ignoring({"/usr/bin/nohup", in_build("bin/torchbridge"), "run", "sh", "-c",
                    "touch $F/up; " + std::string(kUntilGo)},
                   {{"F", folder.path()}}, folder / "nohup");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "up"); }));
  ignoring.signal(SIGHUP);
  folder.write("go", "");
  EXPECT_EQ(ignoring.wait(seconds(30)), 0) << ignoring.error();
}

TEST(AgentRun, EndsWorkersThatHangAfterOthersHaveEnded) {
  Agent agent({"--nproc-per-node", "2", "--exit-barrier", "0.5"},
              "[ $RANK = 0 ] && exit 0; exec sleep 600");
  EXPECT_EQ(agent.wait(), 137);
  EXPECT_NE(agent.error().find(
                "used no CPU time for 0.5 s after other workers had ended (--exit-barrier)"),
            std::string::npos)
      << agent.error();
}

TEST(AgentRun, LeavesWorkersThatComputeAfterOthersHaveEnded) {
  Agent agent({"--nproc-per-node", "2", "--exit-barrier", "1"},
              "[ $RANK = 0 ] && { touch $F/ended; exit 0; }; n=0; while [ $n -lt 1500000 ]; do "
              "n=$((n+1)); done; echo done");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  EXPECT_EQ(agent.out(), "done\n");
}

TEST(AgentRun, NamesAWorkerThatIsStopped) {
  Agent agent({"--nproc-per-node", "2"}, "echo $$ > $F/pid.$RANK; " + std::string(kUntilGo));
  const int pid = agent.pid_in("pid.1");
  kill(pid, SIGSTOP);
  const std::string line = "torchbridge: rank 1 (pid " + std::to_string(pid) + ") on ";
  EXPECT_TRUE(eventually([&] { return agent.error().find(line) == 0; })) << agent.error();
  EXPECT_NE(agent.error().find("is stopped; to continue it: kill -CONT " + std::to_string(pid)),
            std::string::npos);
  kill(pid, SIGCONT);
  EXPECT_TRUE(eventually([&] { return agent.error().find("is continued") != std::string::npos; }))
      << agent.error();
  agent.write("go");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
}

TEST(AgentRun, DoesNotWaitForAStoppedWorkerWhenAnotherFails) {
  Agent agent({"--nproc-per-node", "2", "--grace", "600"},
              "echo $$ > $F/pid.$RANK; [ $RANK = 1 ] && exec sleep 600; " + std::string(kUntilGo) +
                  " exit 4");
  kill(agent.pid_in("pid.1"), SIGSTOP);
  EXPECT_TRUE(eventually([&] { return agent.error().find("is stopped") != std::string::npos; }))
      << agent.error();
  agent.write("go");
  EXPECT_EQ(agent.wait(), 4) << agent.error();
}

TEST(AgentRun, EndsAWorkerWhoseHealthCheckFails) {
  Agent agent(
      {"--nproc-per-node", "2", "--health-check-interval", "1", "--health-check",
       "echo $RANK $TORCHBRIDGE_WORKER_PID >> $F/checked; [ ! -e $F/sick ] || [ $RANK = 0 ]"},
      "echo $$ > $F/pid.$RANK; trap 'exit 0' TERM; " + std::string(kUntilGo));
  const int pid = agent.pid_in("pid.1");
  ASSERT_TRUE(eventually([&] {
    return agent.read("checked").find("1 " + std::to_string(pid) + "\n") != std::string::npos;
  }));
  EXPECT_FALSE(agent.has_ended());
  agent.write("sick");
  EXPECT_EQ(agent.wait(), 137);
  EXPECT_NE(agent.error().find("rank 1 on "), std::string::npos);
  EXPECT_NE(agent.error().find("its health check failed: exit code 1"), std::string::npos)
      << agent.error();
}

TEST(AgentRun, EndsAWorkerWhoseHealthCheckHangs) {
  Agent agent({"--health-check-interval", "0.2", "--health-check", "sleep 600"}, "exec sleep 600");
  EXPECT_EQ(agent.wait(), 137);
  EXPECT_NE(agent.error().find("its health check failed: no answer within 1 s: killed"),
            std::string::npos)
      << agent.error();
}

TEST(AgentRun, AHealthCheckHasASecondWhateverItsInterval) {
  Agent agent({"--health-check-interval", "0.05", "--health-check",
               "sleep 0.15; echo checked >> $F/checked"},
              kUntilGo);
  ASSERT_TRUE(eventually([&] { return lines_of(agent.read("checked")).size() >= 3; }));
  agent.write("go");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
}

TEST(AgentRun, WritesLogsWhereTheyAreAskedFor) {
  const TemporaryFolder logs;
  Agent agent({"--nproc-per-node", "2", "--log-dir", logs / "new", "--rdzv-id", "my/run", "-r",
               "0:1,1:2", "-t", "0:2"},
              "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  std::filesystem::path run;
  for (const auto& entry : std::filesystem::directory_iterator(logs / "new")) run = entry.path();
  EXPECT_EQ(run.filename().string().find("my_run_"), 0u);
  struct stat status {};
  ASSERT_EQ(stat(run.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  const std::string attempt = "new/" + run.filename().string() + "/attempt_0/";
  EXPECT_EQ(logs.read(attempt + "0/stdout.log"), "out 0\n");
  EXPECT_EQ(logs.read(attempt + "0/stderr.log"), "err 0\n");
  EXPECT_EQ(logs.read(attempt + "1/stderr.log"), "err 1\n");
  EXPECT_EQ(agent.out(), "out 1\n");
  EXPECT_EQ(agent.error(), "[default0]:err 0\n");
}

TEST(AgentRun, LeavesNoFolderAfterASuccess) {
  Agent agent({}, "[ -d $(dirname $TORCHELASTIC_ERROR_FILE) ] && echo yes");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  EXPECT_EQ(agent.out(), "yes\n");
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(agent / ""))
    folders += entry.is_directory();
  EXPECT_EQ(folders, 0);
}

TEST(AgentRun, PrintsLinesWholeWithTheirPrefix) {
  constexpr int kLines = 300;
  Agent agent({"--nproc-per-node", "4", "--tee", "3", "--role", "trainer"},
              "n=0; while [ $n -lt " + std::to_string(kLines) +
                  " ]; do printf 'a line of rank %d, ' $RANK;"
                  " printf 'in parts %d\\n' $n; n=$((n+1)); done");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  std::set<std::string> expected;
  for (int rank = 0; rank < 4; ++rank) {
    for (int n = 0; n < kLines; ++n) {
      const std::string number = std::to_string(rank);
      expected.insert("[trainer" + number + "]:a line of rank " + number + ", in parts " +
                      std::to_string(n));
    }
  }
  const Words lines = lines_of(agent.out());
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()), expected);
  EXPECT_EQ(lines.size(), expected.size());
}

TEST(AgentRun, FormatsThePrefixAsToldAndShowsRanksAsTold) {
  Agent agent({"--nproc-per-node", "3", "--tee", "1", "--local-ranks-filter", "0,2"}, "echo hello",
              {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${role_name} ${rank}/${local_rank}> "}});
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  EXPECT_EQ(sorted(lines_of(agent.out())), (Words{"<default 0/0> hello", "<default 2/2> hello"}));
  Agent with_option({"--tee", "1", "--log-line-prefix-template", "${hostname}:${rank}: "},
                    "echo hello", {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "not this one"}});
  EXPECT_EQ(with_option.wait(), 0) << with_option.error();
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof host), 0);
  EXPECT_EQ(with_option.out(), std::string(host) + ":0: hello\n");
}

TEST(AgentRun, GivesWorkersATerminalWhereItHasOne) {
  const TemporaryFolder folder;
  const auto output_of = [&](const std::string& options, const char* no_colour = "") {
    const std::string run = in_build("bin/torchbridge") + " run " + options +
                            " sh -c 'test -t 1 && echo terminal; test -t 2 && echo terminal >&2'";
    Process script({"/usr/bin/script", "-qec", run, "/dev/null"},
                   {{"TMPDIR", folder.path()}, {"NO_COLOR", no_colour}},
                   folder / ((options.empty() ? "plain" : "tee") + std::string(no_colour)));
    EXPECT_EQ(script.wait(seconds(30)), 0);
    return script.out();
  };
  EXPECT_EQ(output_of(""), "terminal\r\nterminal\r\n");
  EXPECT_EQ(output_of("--tee 3"),
            "\033[31m[default0]:\033[0mterminal\r\n\033[31m[default0]:\033[0mterminal\r\n");
  EXPECT_EQ(output_of("--tee 3", "1"), "[default0]:terminal\r\n[default0]:terminal\r\n");
}

TEST(AgentRun, PrintsJsonForEachLine) {
  Agent agent({"--nproc-per-node", "2", "--log-format", "json", "--max-restarts", "1"},
              "echo 'a \"line\"' $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  Words lines;
  for (const std::string& text : lines_of(agent.out() + agent.error())) {
    const auto line = nlohmann::json::parse(text);
    EXPECT_GT(line["time"], 1.7e9);
    if (line["stream"] == "stdout")
      lines.push_back(line["line"].get<std::string>() + line["rank"].dump());
  }
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()),
            (std::set<std::string>{"a \"line\" 00", "a \"line\" 11"}));
}

TEST(AgentRun, HidesTheOutputOfOtherRanks) {
  Agent agent({"--nproc-per-node", "3", "--local-ranks-filter", "1"}, "echo hello $RANK");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  EXPECT_EQ(agent.out(), "hello 1\n");
}

TEST(AgentRun, NamesTheFirstFailureNotTheFirstEnd) {
  // Rank 1 fails, writes why, and takes a while to end; rank 0 loses its connection and ends at
  // once.
  const TemporaryFolder folder;
  Agent agent(
      {"--nproc-per-node", "2", "--json-summary", folder / "summary.json"},
      "[ $RANK = 1 ] && { printf %s '{\"message\": {\"message\": \"ValueError: bad loss\", "
      "\"extraInfo\": "
      "{\"py_callstack\": \"Traceback:\\n  train.py line 7\\nValueError: bad loss\", "
      "\"timestamp\": \"1\"}}}'"
      " > $TORCHELASTIC_ERROR_FILE; trap '' TERM; touch $F/failed;"
      "while [ ! -s $F/pid ] || kill -0 $(cat $F/pid) 2>/dev/null; do sleep 0.01; done; exit 5; };"
      "while [ ! -e $F/failed ]; do sleep 0.01; done; echo $$ > $F/pid; exit 1",
      {{"TORCHELASTIC_ERROR_FILE", folder / "own_error.json"}});
  EXPECT_EQ(agent.wait(), 5) << agent.error();
  EXPECT_NE(agent.error().find("root cause: rank 1 on"), std::string::npos) << agent.error();
  EXPECT_NE(agent.error().find("train.py line 7"), std::string::npos) << agent.error();
  EXPECT_NE(agent.error().find("then: rank 0 on"), std::string::npos) << agent.error();

  const auto summary = nlohmann::json::parse(folder.read("summary.json"));
  EXPECT_EQ(summary["result"], "failed");
  EXPECT_EQ(summary["exit_code"], 5);
  ASSERT_EQ(summary["attempts"][0]["failures"].size(), 2u);
  EXPECT_EQ(summary["attempts"][0]["failures"][0]["message"], "ValueError: bad loss");
  EXPECT_EQ(summary["attempts"][0]["failures"][1]["rank"], 0);

  const auto own = nlohmann::json::parse(folder.read("own_error.json"));
  EXPECT_EQ(own["message"]["message"], "ValueError: bad loss");
  EXPECT_EQ(own["message"]["errorCode"], 5);
}

TEST(AgentRun, KeepsTheBudgetOfRestartsWhenItIsKilled) {
  const TemporaryFolder folder;
  const Words options = {"--max-restarts", "2", "--rdzv-id", "night", "--log-dir", folder / "logs"};
  const std::string script =
      "echo $TORCHELASTIC_RESTART_COUNT >> " + (folder / "counts").string() +
      "; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && [ ! -e $F/go ] && { touch $F/up; exec sleep 600; };"
      "exit $((10 + TORCHELASTIC_RESTART_COUNT))";
  {
    Agent first(options, script);
    ASSERT_TRUE(first.appears("up"));
    first.signal(SIGKILL);
    EXPECT_EQ(first.wait(), 137);
  }
  EXPECT_EQ(folder.read("logs/night.restarts").substr(0, 2), "1 ");
  Agent second(options,
               "echo $TORCHELASTIC_RESTART_COUNT >> " + (folder / "counts").string() + "; exit 9");
  EXPECT_EQ(second.wait(), 9) << second.error();
  EXPECT_EQ(folder.read("counts"), "0\n1\n1\n2\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "logs/night.restarts"));
}

TEST(AgentRun, WorksWithoutStandardStreams) {
  const TemporaryFolder folder;
  Process agent(
      {"/bin/sh", "-c", "exec \"$0\" run sh -c 'ls -l /proc/self/fd > $F/fds' <&- >&- 2>&-",
       in_build("bin/torchbridge")},
      {{"F", folder.path()}}, folder / "agent");
  EXPECT_EQ(agent.wait(seconds(30)), 0);
  EXPECT_NE(folder.read("fds").find("0 -> /dev/null"), std::string::npos) << folder.read("fds");
}

TEST(AgentRun, NamesTheLimitOfOpenFiles) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer looks at memory through a pipe, which needs descriptors";
#endif
  const TemporaryFolder folder;
  int lines = 0;
  for (int limit = 4; limit < 20; ++limit) {
    const auto run = [&](const std::string& arguments) {
      const std::string script =
          "ulimit -n " + std::to_string(limit) + "; exec \"$0\" " + arguments;
      Process process({"/bin/sh", "-c", script, in_build("bin/torchbridge")}, {},
                      folder / (std::to_string(limit) + arguments.substr(0, 3)));
      const int code = process.wait(seconds(30));
      return std::pair(code, process.error());
    };
    if (run("--version").first != 0) continue;  // its libraries cannot be loaded
    const auto [code, error] = run("run true");
    if (code == 0) {
      EXPECT_EQ(error, "") << limit;
      continue;
    }
    EXPECT_TRUE(error.starts_with("torchbridge: ")) << limit << error;
    EXPECT_TRUE(contains(error, "Too many open files"));
    lines += lines_of(error).size() == 1;
  }
  EXPECT_GT(lines, 0);
}

TEST(AgentRun, GoesOnWhenTheReaderOfItsOutputHasEnded) {
  const TemporaryFolder folder;
  const std::string script =
      "set -o pipefail; \"$0\" run --nproc-per-node 2 --tee 3 sh -c "
      "'i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; touch $F/done.$RANK' | head -2";
  Process process({"/bin/bash", "-c", script, in_build("bin/torchbridge")},
                  {{"F", folder.path()}, {"TMPDIR", folder.path()}}, folder / "run");
  EXPECT_EQ(process.wait(seconds(60)), 0) << process.error();
  EXPECT_TRUE(std::filesystem::exists(folder / "done.0"));
  EXPECT_TRUE(std::filesystem::exists(folder / "done.1"));
}

TEST(AgentRun, AStoppedWorkerIsNotTheRootCauseOfAnothersFailure) {
  Agent agent({"--nproc-per-node", "2"},
              "if [ $RANK = 0 ]; then echo $$ >$F/pid; sleep 600; fi; while [ ! -e $F/go ]; do "
              "sleep 0.01; done; exit 3");
  const int stopped = agent.pid_in("pid");
  kill(stopped, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return contains(agent.error(), "is stopped").operator bool(); }));
  agent.write("go");
  EXPECT_EQ(agent.wait(), 3) << agent.error();
  EXPECT_TRUE(contains(agent.error(), "root cause: rank 1"));
  EXPECT_TRUE(contains(agent.error(), "ended because of it: rank 0"));
}

TEST(AgentRun, ASignalDoesNotWaitForProcessesThatHaveEnded) {
  for (int i = 0; i < 8; ++i) {  // it was one run of four
    Agent agent({"--nproc-per-node", "2", "--grace", "3600"},
                "for i in 1 2 3 4; do sleep 600 & done; touch $F/up.$RANK; wait");
    ASSERT_TRUE(agent.appears("up.0") && agent.appears("up.1"));
    agent.signal(SIGTERM);
    EXPECT_EQ(agent.wait(), 128 + SIGTERM) << agent.error();
  }
}

TEST(AgentRun, WorkersThatEndByAHandlerOfTheSignalDidNotFail) {
  Agent agent(
      {"--nproc-per-node", "2", "--grace", "1", "--max-restarts", "3"},
      "if [ $RANK = 1 ]; then trap 'exit 143' TERM; touch $F/up; while :; do sleep 0.01; done; fi; "
      "while [ ! -e $F/up ]; do sleep 0.01; done; exit 75");
  EXPECT_EQ(agent.wait(), 75) << agent.error();
  EXPECT_FALSE(contains(agent.error(), "restart 1")) << agent.error();
  Agent failing(
      {"--nproc-per-node", "2"},
      "if [ $RANK = 1 ]; then trap 'exit 1' TERM; touch $F/up; while :; do sleep 0.01; done; fi; "
      "while [ ! -e $F/up ]; do sleep 0.01; done; exit 4");
  EXPECT_EQ(failing.wait(), 4);
  EXPECT_TRUE(contains(failing.error(), "ended because of it: rank 1")) << failing.error();
}

TEST(AgentRun, IsTheFirstProcessOfAContainer) {
  const TemporaryFolder folder;
  Process probe({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "true"}, {},
                folder / "probe");
  if (probe.wait(seconds(30)) != 0) GTEST_SKIP() << "no PID namespaces here";
  Process agent({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                 in_build("bin/torchbridge"), "run", "--nproc-per-node", "2", "--max-restarts", "1",
                 "sh", "-c",
                 "echo $RANK $TORCHELASTIC_RESTART_COUNT; setsid sleep 600 & [ "
                 "$TORCHELASTIC_RESTART_COUNT = 1 ]"},
                {}, folder / "agent");
  EXPECT_EQ(agent.wait(seconds(30)), 0) << agent.error();
}

TEST(Spawn, RunsAFunctionInEachRank) {
  const TemporaryFolder folder;
  Process good({in_build("bin/spawn_ranks"), "3", "0"}, {}, folder / "good");
  EXPECT_EQ(good.wait(seconds(30)), 0) << good.error();
  EXPECT_EQ(sorted(lines_of(good.out())),
            (Words{"ended with 0", "rank 0 of 3", "rank 1 of 3", "rank 2 of 3"}));
  Process bad({in_build("bin/spawn_ranks"), "2", "5"}, {}, folder / "bad");
  EXPECT_EQ(bad.wait(seconds(30)), 5);
  EXPECT_NE(bad.error().find("root cause: rank 1 on "), std::string::npos) << bad.error();
}

TEST(AgentRun, GivesARunWithoutANameARandomId) {
  constexpr std::size_t kUuidAndNewline = 37;
  for (const Words& options : {Words{}, Words{"--rdzv-id", ""}}) {
    Agent agent(options, "echo $TORCHELASTIC_RUN_ID");
    EXPECT_EQ(agent.wait(), 0) << agent.error();
    EXPECT_EQ(agent.out().size(), kUuidAndNewline) << agent.out();
  }
  Agent named({"--rdzv-id", "night"}, "echo $TORCHELASTIC_RUN_ID");
  EXPECT_EQ(named.wait(), 0) << named.error();
  EXPECT_EQ(named.out(), "night\n");
}

TEST(AgentRun, NotesANodeRankThatHasNoEffect) {
  Agent agent({"--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
               "--rdzv-conf", "last_call_timeout=1", "--node-rank", "1"},
              "echo ran");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  EXPECT_NE(agent.error().find("torchbridge: --node-rank has no effect with --rdzv-backend c10d\n"),
            std::string::npos)
      << agent.error();
}

TEST(AgentRun, NamesKeysOfRdzvConfThatNoBackendReads) {
  Agent agent({"--rdzv-conf", "timout=5"}, "echo ran");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  EXPECT_EQ(agent.out(), "ran\n");
  EXPECT_EQ(
      agent.error(),
      "torchbridge: --rdzv-conf: no backend reads the key 'timout'; did you mean 'timeout'?\n");
}

TEST(AgentRun, RunsWhereThePortOfTheLivenessProbeIsNone) {
  Agent agent({}, "echo ran", {{"TORCHELASTIC_HEALTH_CHECK_PORT", "abc"}});
  EXPECT_EQ(agent.wait(), 0) << agent.error();
  EXPECT_EQ(agent.out(), "ran\n");
  EXPECT_TRUE(
      agent.error().starts_with("torchbridge: no liveness probe is answered: "
                                "TORCHELASTIC_HEALTH_CHECK_PORT='abc': expected an"))
      << agent.error();
}

TEST(AgentRun, AnswersTheLivenessProbe) {
  const int port = free_port();
  Agent agent({}, "touch $F/up; " + std::string(kUntilGo),
              {{"TORCHELASTIC_HEALTH_CHECK_PORT", std::to_string(port)}});
  ASSERT_TRUE(agent.appears("up"));
  const TemporaryFolder folder;
  Process probe({"/usr/bin/python3", "-c",
                 "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:" +
                     std::to_string(port) + "/').status)"},
                {}, folder / "probe");
  EXPECT_EQ(probe.wait(seconds(30)), 0) << probe.error();
  EXPECT_EQ(probe.out(), "200\n");
  agent.write("go");
  EXPECT_EQ(agent.wait(), 0) << agent.error();
}

}  // namespace
