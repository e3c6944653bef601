// torchbridge run over several nodes, which are agents on this host: joined, killed, stopped and
// joined again.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

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

using std::chrono::seconds;

bool can_connect(int port) {
  return torchbridge::connect_to({"127.0.0.1", port}, seconds(1)).operator bool();
}

const std::string kToken = "0123456789abcdef0123456789abcdef";
const Variables kWithToken = {{"TORCHBRIDGE_RDZV_TOKEN", kToken}};

// The agents of one run, with a token, a folder $F that all workers share, and one endpoint.
class Nodes {
 public:
  Nodes(Words options, std::string script)
      : options_(std::move(options)), script_(std::move(script)) {}

  // Starts one more agent; `more` comes after the options of all.
  Process& add(const Words& more = {}) {
    Words command = {in_build("bin/torchbridge"), "run",     "--rdzv-backend", "c10d",
                     "--rdzv-endpoint",           endpoint()};
    command.insert(command.end(), options_.begin(), options_.end());
    command.insert(command.end(), more.begin(), more.end());
    if (getenv("AGENT_PRELOAD")) {
      command.insert(command.end(), {"--preload", "json"});
      command.push_back(in_source("tests/programs/become_arguments.py"));
    }
    command.insert(command.end(), {"sh", "-c", script_});
    Variables variables = {
        {"F", folder_.path()}, {"TMPDIR", folder_.path()}, {"PYTHONPATH", folder_.path()}};
    if (has_token_) variables.insert(kWithToken.begin(), kWithToken.end());
    agents_.emplace_back(command, variables, folder_ / ("agent" + std::to_string(agents_.size())));
    return agents_.back();
  }
  // For agents that are added from here on.
  void forget_token() { has_token_ = false; }
  // The first one coordinates.
  void add_all(int count) {
    add();
    ASSERT_TRUE(eventually([&] { return can_connect(port_); }));
    for (int i = 1; i < count; ++i) add();
  }
  Process& operator[](std::size_t i) { return agents_[i]; }
  int wait(std::size_t i, seconds time = seconds(60)) { return agents_[i].wait(time); }
  void expect_all(int code) {
    for (std::size_t i = 0; i < agents_.size(); ++i)
      EXPECT_EQ(wait(i), code) << i << ": " << agents_[i].error();
  }
  // Of all agents, sorted.
  Words out() const {
    Words lines;
    for (const Process& agent : agents_) {
      for (std::string& line : lines_of(agent.out())) lines.push_back(std::move(line));
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  }
  // "ATTEMPT RANK/WORLD_SIZE" lines, which the workers write, of one round.
  Words of_round(const std::string& world_size, const std::string& restart = "0") const {
    Words lines;
    for (const std::string& line : out()) {
      if (line.starts_with(restart + " ") && line.ends_with("/" + world_size))
        lines.push_back(line);
    }
    return lines;
  }
  bool eventually_runs(const Words& lines, const std::string& world_size,
                       const std::string& restart = "0") const {
    return eventually([&] { return of_round(world_size, restart) == lines; });
  }
  std::string errors() const {
    std::string text;
    for (const Process& agent : agents_) text += agent.error();
    return text;
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  const TemporaryFolder& folder() const { return folder_; }
  void write(const std::string& name) const { folder_.write(name, ""); }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

 private:
  int port_ = free_port();
  bool has_token_ = true;
  Words options_;
  std::string script_;
  TemporaryFolder folder_;
  std::deque<Process> agents_;
};

// What workers print of their round; then they wait for the file `go`.
constexpr char kShow[] = "echo $TORCHELASTIC_RESTART_COUNT $RANK/$WORLD_SIZE;";
constexpr char kWaitForGo[] = "while [ ! -e $F/go ]; do sleep 0.01; done;";
const std::string kShowAndWait = std::string(kShow) + kWaitForGo;
// A loss is noticed within 2 s, and no node is waited for longer than 1 s.
constexpr char kQuick[] = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=2";

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The kernel resets the connection of a killed process that has not read all of it.
void expect_killed_peer(const std::string& errors, const std::string& subject) {
  EXPECT_EQ(count_of(errors, subject + "closed its connection") +
                count_of(errors, subject + "lost its connection: Connection reset by peer"),
            1)
      << errors;
}

TEST(AgentNodes, NumberRanksAgentByAgent) {
  Nodes nodes({"--nnodes", "3", "--rdzv-id", "job"},
              "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
              "$TORCHELASTIC_RUN_ID $MASTER_ADDR:$MASTER_PORT ${TORCHBRIDGE_LISTEN_FD:+socket}");
  for (const char* workers : {"2", "2", "2"}) nodes.add({"--nproc-per-node", workers});
  nodes.expect_all(0);
  const Words lines = nodes.out();
  ASSERT_EQ(lines.size(), 6u);
  const std::string master =
      lines[0].substr(lines[0].find(" job ") + 5, lines[0].rfind(' ') - lines[0].find(" job ") - 5);
  for (int rank = 0; rank < 6; ++rank) {
    const std::string local = std::to_string(rank % 2), node = std::to_string(rank / 2);
    EXPECT_EQ(lines[rank], std::to_string(rank) + "/6 " + local + "/2 " + node + "/3 job " +
                               master + (rank == 0 ? " socket" : ""));
  }
  EXPECT_EQ(nodes.errors(), "");
}

TEST(AgentNodes, MayHaveDifferentNumbersOfWorkers) {
  Nodes nodes({"--nnodes", "4"}, "echo $RANK/$WORLD_SIZE $LOCAL_WORLD_SIZE");
  for (const char* workers : {"7", "8", "8", "8"}) nodes.add({"--nproc-per-node", workers});
  nodes.expect_all(0);
  const Words lines = nodes.out();
  EXPECT_EQ(lines.size(), 31u);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.ends_with("/31 7"); }),
            7);
}

TEST(AgentNodes, NumberTheRanksOfEachRole) {
  Nodes nodes({"--nnodes", "3", "--rdzv-backend", "static"},
              "echo $RANK $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE");
  nodes.add({"--node-rank", "0", "--role", "trainer", "--nproc-per-node", "2"});
  nodes.add({"--node-rank", "1", "--role", "master", "--nproc-per-node", "1"});
  nodes.add({"--node-rank", "2", "--role", "trainer", "--nproc-per-node", "2"});
  nodes.expect_all(0);
  EXPECT_EQ(nodes.out(), Words({"0 trainer 0/4", "1 trainer 1/4", "2 master 0/1", "3 trainer 2/4",
                                "4 trainer 3/4"}));
}

TEST(AgentNodes, StaticNumbersNodesByTheirRank) {
  Nodes nodes({"--nnodes", "3", "--rdzv-backend", "static"},
              kShowAndWait + "echo node $NODE $RANK");
  // In another order than they are started in.
  nodes.add({"--node-rank", "2"});
  nodes.add({"--node-rank", "1"});
  nodes.add({"--node-rank", "0"});
  ASSERT_TRUE(nodes.eventually_runs({"0 0/3", "0 1/3", "0 2/3"}, "3"));
  EXPECT_EQ(lines_of(nodes[0].out()).front(), "0 2/3");
  EXPECT_EQ(lines_of(nodes[1].out()).front(), "0 1/3");
  EXPECT_EQ(lines_of(nodes[2].out()).front(), "0 0/3");
  nodes.write("go");
  nodes.expect_all(0);
}

TEST(AgentNodes, AFailureEndsAllWithTheExitCodeOfTheRootCauseAndOneSummary) {
  Nodes nodes({"--nnodes", "3", "--nproc-per-node", "2", "--json-summary", "/dev/null"},
              std::string(kShow) + "[ $RANK != 3 ] || exit 7; sleep 60");
  nodes.add_all(3);
  nodes.expect_all(7);
  const std::string errors = nodes.errors();
  EXPECT_EQ(count_of(errors, "failed after 1 attempt"), 1) << errors;
  EXPECT_EQ(count_of(errors, "root cause: rank 3 on "), 1) << errors;
  EXPECT_EQ(count_of(errors, "ended because of it: ranks 0, 1, 2, 4, 5"), 1) << errors;
  EXPECT_NE(nodes[0].error().find("failed after"), std::string::npos)
      << "the coordinator prints it";
  // Rank 3 is of the second or third agent; the other one, whose user may see its lines alone,
  // names it too.
  for (const std::size_t agent : {1, 2}) {
    EXPECT_EQ(count_of(nodes[agent].error(), "rank 3 on "), 1) << nodes[agent].error();
    EXPECT_EQ(count_of(nodes[agent].error(), "the run failed: "), 1) << nodes[agent].error();
  }
}

TEST(AgentNodes, ARestartIsOneForAll) {
  // Rank 2 fails twice, when all have printed their line.
  Nodes nodes({"--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "3"},
              std::string(kShow) +
                  "R=$TORCHELASTIC_RESTART_COUNT; [ $R != 2 ] || exit 0; touch $F/up.$R.$RANK; "
                  "[ $RANK = 2 ] || exec sleep 60; "
                  "while [ $(ls $F/up.$R.* | wc -l) != 4 ]; do sleep 0.01; done; kill -9 $$");
  nodes.add_all(2);
  nodes.expect_all(0);
  for (const char* restart : {"0", "1", "2"}) {
    const std::string n = restart;
    EXPECT_EQ(nodes.of_round("4", n), (Words{n + " 0/4", n + " 1/4", n + " 2/4", n + " 3/4"}));
  }
  EXPECT_EQ(count_of(nodes.errors(), "restart 2 of 3"), 1);
}

TEST(AgentNodes, ACrashLoopEndsAllWithItsReason) {
  Nodes nodes({"--nnodes", "2", "--max-restarts", "9"}, "[ $RANK != 1 ] || exit 5; sleep 60");
  nodes.add_all(2);
  nodes.expect_all(5);
  EXPECT_EQ(count_of(nodes.errors(), "the same failure 3 times in a row"), 1) << nodes.errors();
}

TEST(AgentNodes, GoOnWithoutAnAgentThatIsKilledAndUseNoRestart) {
  Nodes nodes({"--nnodes", "2:3", "--rdzv-conf", kQuick}, "echo $$ >$F/pid.$RANK;" + kShowAndWait);
  nodes.add_all(3);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/3", "0 1/3", "0 2/3"}, "3"));
  nodes[2].signal(SIGKILL);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2")) << nodes.errors();
  nodes.write("go");
  EXPECT_EQ(nodes.wait(0), 0) << nodes[0].error();
  EXPECT_EQ(nodes.wait(1), 0) << nodes[1].error();
  for (const std::size_t agent : {0, 1}) expect_killed_peer(nodes[agent].error(), " is lost: it ");
}

TEST(AgentNodes, TakeInOneThatJoinsLater) {
  Nodes nodes({"--nnodes", "2:3", "--rdzv-conf", kQuick}, kShowAndWait);
  nodes.add_all(2);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  nodes.add();
  ASSERT_TRUE(nodes.eventually_runs({"0 0/3", "0 1/3", "0 2/3"}, "3")) << nodes.errors();
  nodes.write("go");
  nodes.expect_all(0);
}

TEST(AgentNodes, ASpareTakesThePlaceOfOneThatIsLostAndTheOthersKeepTheirRanks) {
  Nodes nodes({"--nnodes", "3:4", "--active", "3"}, "echo $RANK >>$F/ranks.$PPID;" + kShowAndWait);
  nodes.add_all(3);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/3", "0 1/3", "0 2/3"}, "3"));
  Process& spare = nodes.add();
  constexpr std::size_t kLost = 1;  // does not coordinate; ranks are in the order of joining
  const std::string of_lost = nodes[kLost].out();
  nodes[kLost].signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return spare.out() == of_lost; })) << nodes.errors();
  for (const std::size_t agent : {0, 2}) {
    // On a busy machine there may be a round more.
    const auto has_its_rank_again = [&] {
      const Words rounds = lines_of(nodes[agent].out());
      return rounds.size() >= 2 && rounds == Words(rounds.size(), rounds.front());
    };
    EXPECT_TRUE(eventually(has_its_rank_again)) << nodes[agent].out();
  }
  nodes.write("go");
  for (std::size_t i = 0; i < 4; ++i) {
    if (i == kLost) continue;
    EXPECT_EQ(nodes.wait(i), 0) << nodes[i].error();
  }
}

TEST(AgentNodes, AllEndAtOnceWhenTheCoordinatorIsKilled) {
  Nodes nodes({"--nnodes", "1:3", "--rdzv-conf", kQuick}, "echo $$ >$F/pid.$RANK;" + kShowAndWait);
  nodes.add_all(3);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/3", "0 1/3", "0 2/3"}, "3"));
  nodes[0].signal(SIGKILL);
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(nodes.wait(i), 1);
    expect_killed_peer(nodes[i].error(), "the coordinator at " + nodes.endpoint() + ' ');
  }
}

TEST(AgentNodes, AnotherAgentCoordinatesWhereAFileNamesTheCoordinator) {
  const TemporaryFolder folder;
  const std::string path = folder / "coordinator";
  Nodes nodes({"--nnodes", "2:3", "--max-restarts", "2", "--rdzv-endpoint", path, "--rdzv-conf",
               std::string("store_type=file,") + kQuick},
              "[ $RANK$TORCHELASTIC_RESTART_COUNT != 00 ] || { while [ ! -e $F/fail ]; do sleep "
              "0.01; done; exit 9; };" +
                  kShowAndWait);
  nodes.add();
  ASSERT_TRUE(eventually([&] { return folder.read("coordinator").starts_with("0 "); }));
  nodes.add();
  nodes.add();
  ASSERT_TRUE(nodes.eventually_runs({"0 1/3", "0 2/3"}, "3")) << nodes.errors();
  nodes.write("fail");
  ASSERT_TRUE(nodes.eventually_runs({"1 0/3", "1 1/3", "1 2/3"}, "3", "1")) << nodes.errors();
  nodes[0].signal(SIGKILL);
  ASSERT_TRUE(nodes.eventually_runs({"1 0/2", "1 1/2"}, "2", "1")) << nodes.errors();
  nodes.write("go");
  EXPECT_EQ(nodes.wait(1), 0) << nodes[1].error();
  EXPECT_EQ(nodes.wait(2), 0) << nodes[2].error();
  EXPECT_FALSE(std::filesystem::exists(path)) << folder.read("coordinator");
}

// Agents of a run whose coordinator a file names.
class FileNodes : public Nodes {
 public:
  FileNodes(const TemporaryFolder& folder, const std::string& nodes, std::string script)
      : Nodes({"--nnodes", nodes, "--max-restarts", "3", "--rdzv-endpoint", folder / "record",
               "--rdzv-conf", std::string("store_type=file,") + kQuick, "--json-summary",
               folder / "summary.json"},
              std::move(script)) {}
};

TEST(AgentNodes, ACoordinatorThatGetsASignalHandsOverWhenItsWorkersHaveEnded) {
  TemporaryFolder folder;
  FileNodes nodes(folder, "1:3",
                  "[ ! -e $F/saving ] || [ -e $F/saved ] || touch $F/overlap; "
                  "[ $RANK$TORCHELASTIC_RESTART_COUNT != 00 ] || "
                  "{ while [ ! -e $F/fail ]; do sleep 0.01; done; exit 9; };"
                  "trap 'exit 0' TERM; [ $RANK$TORCHELASTIC_RESTART_COUNT != 21 ] || "
                  "trap 'touch $F/saving; while [ ! -e $F/save ]; do sleep 0.01; done; touch "
                  "$F/saved; exit 0' TERM;" +
                      kShowAndWait);
  nodes.add();
  ASSERT_TRUE(eventually([&] { return folder.read("record").starts_with("0 "); }));
  nodes.add();
  nodes.add();
  ASSERT_TRUE(nodes.eventually_runs({"0 1/3", "0 2/3"}, "3")) << nodes.errors();
  nodes.write("fail");
  ASSERT_TRUE(nodes.eventually_runs({"1 0/3", "1 1/3", "1 2/3"}, "3", "1")) << nodes.errors();
  nodes[0].signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return nodes.exists("saving"); }));
  nodes.write("save");
  EXPECT_EQ(nodes.wait(0), 128 + SIGTERM);
  ASSERT_TRUE(nodes.eventually_runs({"1 0/2", "1 1/2"}, "2", "1")) << nodes.errors();
  EXPECT_FALSE(nodes.exists("overlap"))
      << "a worker of the next round began before those of the last had ended";
  nodes.write("go");
  EXPECT_EQ(nodes.wait(1), 0) << nodes[1].error();
  EXPECT_EQ(nodes.wait(2), 0) << nodes[2].error();
}

TEST(AgentNodes, NothingOfTheRunStaysInTheFileWhereAllAgentsGetASignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    TemporaryFolder folder;
    FileNodes nodes(
        folder, "2",
        "[ $RANK$TORCHELASTIC_RESTART_COUNT != 00 ] || exit 9; trap 'exit 0' TERM INT;" +
            kShowAndWait);
    nodes.add();
    nodes.add();
    ASSERT_TRUE(nodes.eventually_runs({"1 0/2", "1 1/2"}, "2", "1")) << nodes.errors();
    nodes[0].signal(signal);
    nodes[1].signal(signal);
    nodes.expect_all(128 + signal);
    EXPECT_EQ(nlohmann::json::parse(folder.read("summary.json"))["result"], "stopped");
    // Also where the first one has handed over before the second one got the signal.
    FileNodes next(folder, "2", kShowAndWait);
    next.add();
    next.add();
    ASSERT_TRUE(next.eventually_runs({"0 0/2", "0 1/2"}, "2"))
        << "it begins with all restarts: " << next.errors();
    next.write("go");
    next.expect_all(0);
  }
}

TEST(AgentNodes, AnAddressThatIsNotOfItsNodeIsAnErrorOfThatAgentAlone) {
  Nodes nodes({"--nnodes", "1:3", "--max-restarts", "1", "--rdzv-conf", kQuick},
              "[ $RANK$TORCHELASTIC_RESTART_COUNT != 00 ] || { while [ ! -e $F/fail ]; do sleep "
              "0.01; done; exit 3; };" +
                  kShowAndWait);
  nodes.add_all(2);
  ASSERT_TRUE(nodes.eventually_runs({"0 1/2"}, "2")) << nodes.errors();
  nodes.add({"--local-addr", "203.0.113.7"});
  EXPECT_EQ(nodes.wait(2), 1);
  EXPECT_EQ(count_of(nodes[2].error(), "--local-addr 203.0.113.7 is not an address of "), 1)
      << nodes[2].error();
  nodes.write("fail");
  ASSERT_TRUE(nodes.eventually_runs({"1 0/2", "1 1/2"}, "2", "1")) << nodes.errors();
  nodes.write("go");
  EXPECT_EQ(nodes.wait(0), 0);
  EXPECT_EQ(nodes.wait(1), 0);
}

TEST(AgentNodes, TheSummaryNamesANodeThatWasLostAndNoWorkerThatWasEnded) {
  Nodes nodes({"--nnodes", "2", "--rdzv-conf", std::string("join_timeout=5,") + kQuick},
              kShowAndWait);
  nodes.add_all(2);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  nodes[1].signal(SIGKILL);
  EXPECT_EQ(nodes.wait(0), 1);
  EXPECT_EQ(count_of(nodes[0].error(), "root cause: node "), 1) << nodes[0].error();
  // Which rank this node has depends on who joined first.
  EXPECT_EQ(count_of(nodes[0].error(), "ended because of it: rank "), 1) << nodes[0].error();
}

TEST(AgentNodes, AnAgentThatIsStoppedIsLostAndJoinsAgainWhenItContinues) {
  Nodes nodes({"--nnodes", "1:2", "--rdzv-conf", kQuick}, kShowAndWait);
  nodes.add_all(2);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  const int agent = torchbridge::children_of(nodes[1].pid()).front();  // below the guardian
  kill(agent, SIGSTOP);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/1"}, "1")) << nodes.errors();
  EXPECT_EQ(count_of(nodes[0].error(), "is lost: it sent nothing for 2 s"), 1) << nodes[0].error();
  kill(agent, SIGCONT);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 0/2", "0 1/2", "0 1/2"}, "2")) << nodes.errors();
  nodes.write("go");
  nodes.expect_all(0);
}

TEST(AgentNodes, AnAgentEndedByASignalLeavesTheOthersToGoOn) {
  Nodes nodes({"--nnodes", "1:2", "--rdzv-conf", kQuick}, kShowAndWait);
  nodes.add_all(2);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  nodes[1].signal(SIGTERM);
  EXPECT_EQ(nodes.wait(1), 128 + SIGTERM) << nodes[1].error();
  ASSERT_TRUE(nodes.eventually_runs({"0 0/1"}, "1")) << nodes.errors();
  nodes.add();  // it comes back
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 0/2", "0 1/2", "0 1/2"}, "2")) << nodes.errors();
  nodes.write("go");
  EXPECT_EQ(nodes.wait(0), 0) << nodes[0].error();
  EXPECT_EQ(nodes.wait(2), 0) << nodes[2].error();
}

TEST(AgentNodes, ASignalToTheCoordinatorEndsTheRun) {
  Nodes nodes({"--nnodes", "3"}, "trap 'echo ended; exit 0' TERM;" + kShowAndWait);
  nodes.add_all(3);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/3", "0 1/3", "0 2/3"}, "3"));
  nodes[0].signal(SIGTERM);
  nodes.expect_all(128 + SIGTERM);
  EXPECT_EQ(nodes.out(), (Words{"0 0/3", "0 1/3", "0 2/3", "ended", "ended", "ended"}));
}

TEST(AgentNodes, WorkersThatWantARequeueEndTheRunWith75) {
  Nodes nodes(
      {"--nnodes", "2", "--grace", "1", "--max-restarts", "3"},
      std::string(kShow) +
          "[ $RANK = 1 ] || { trap 'exit 75' TERM; while :; do sleep 0.01; done; }; exit 75");
  nodes.add_all(2);
  nodes.expect_all(75);
}

TEST(AgentNodes, AHangingWorkerIsEndedWhenThoseOfOtherNodesHaveEnded) {
  Nodes nodes({"--nnodes", "2", "--exit-barrier", "0.5"}, "[ $RANK = 0 ] || sleep 60");
  nodes.add_all(2);
  nodes.expect_all(128 + SIGKILL);
  EXPECT_EQ(count_of(nodes.errors(), "used no CPU time for 0.5 s after other workers had ended"), 2)
      << nodes.errors();
}

TEST(AgentNodes, AWorkerWhoseModulesAreStillImportedIsNotTakenForOneThatHangs) {
  if (getenv("AGENT_PRELOAD")) GTEST_SKIP() << "both nodes would import";
  Nodes nodes({"--nnodes", "2", "--exit-barrier", "1"}, "echo $RANK; touch $F/ended.$RANK");
  nodes.folder().write("slow.py",
                       "import os, time\n"
                       "while not os.path.exists(os.environ['F'] + '/ended.0'): time.sleep(0.01)\n"
                       "time.sleep(2.5)\n");
  nodes.add_all(1);
  nodes.add({"--preload", "slow", in_source("tests/programs/become_arguments.py")});
  nodes.expect_all(0);
  EXPECT_EQ(nodes.out(), (Words{"0", "1"})) << nodes.errors();
}

TEST(AgentNodes, AProgramThatOneNodeLacksEndsAllAtOnce) {
  Nodes nodes({"--nnodes", "2"}, "sleep 60");
  nodes.add_all(1);
  Process lacking({in_build("bin/torchbridge"), "run", "--nnodes", "2", "--rdzv-backend", "c10d",
                   "--rdzv-endpoint", nodes.endpoint(), "no_such_program"},
                  kWithToken, nodes.folder() / "lacking");
  EXPECT_EQ(lacking.wait(seconds(30)), 127);
  nodes.expect_all(127);
  EXPECT_NE(nodes.errors().find("cannot run 'no_such_program'"), std::string::npos)
      << nodes.errors();
}

TEST(AgentNodes, EachAgentNamesWhyItsWorkersAreStopped) {
  Nodes nodes({"--nnodes", "2:3", "--rdzv-conf", kQuick}, kShowAndWait);
  nodes.add_all(2);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  nodes.add();
  ASSERT_TRUE(nodes.eventually_runs({"0 0/3", "0 1/3", "0 2/3"}, "3"));
  for (const std::size_t agent : {0, 1}) {
    EXPECT_EQ(count_of(nodes[agent].error(), " has joined"), 1) << nodes[agent].error();
  }
  nodes[2].signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return nodes.of_round("2").size() == 4; }));
  for (const std::size_t agent : {0, 1}) expect_killed_peer(nodes[agent].error(), " is lost: it ");
  nodes.write("go");
  EXPECT_EQ(nodes.wait(0), 0);
  EXPECT_EQ(nodes.wait(1), 0);
}

TEST(AgentNodes, TooFewNodesAreAnErrorThatNamesThem) {
  Nodes nodes({"--nnodes", "3", "--rdzv-conf", "join_timeout=5"}, "echo started");
  nodes.add_all(2);
  nodes.expect_all(1);
  EXPECT_EQ(count_of(nodes[0].error(), "only 2 nodes of 3: "), 1) << nodes[0].error();
  EXPECT_NE(nodes[0].error().find("joined within 5 s (join_timeout in --rdzv-conf)"),
            std::string::npos);
  EXPECT_EQ(count_of(nodes[1].error(), "only 2 nodes of 3: "), 1)
      << "also where each agent has a terminal of its own";
  EXPECT_EQ(nodes.out(), Words{});
}

TEST(AgentNodes, AnAgentSaysThatItWaitsForTheCoordinator) {
  Nodes nodes({"--nnodes", "2"}, "echo $RANK");
  nodes.add({"--rdzv-conf", "is_host=false"});
  ASSERT_TRUE(eventually([&] { return count_of(nodes[0].error(), "\n") == 1; }));
  EXPECT_EQ(
      nodes[0].error(),
      "torchbridge: waiting for the coordinator, at most 600 s: cannot connect to 127.0.0.1 port " +
          std::to_string(nodes.port()) +
          ": Connection refused; --rdzv-endpoint 127.0.0.1 is each host's own "
          "address: agents of other hosts do not find this one\n");
  nodes.add();
  nodes.expect_all(0);
}

// A shell command that limits open files, and is followed by what it runs.
Words with_limit(const std::string& limit, const Words& command) {
  Words line = {"/bin/sh", "-c", "ulimit " + limit + "; exec \"$@\"", "sh"};
  line.insert(line.end(), command.begin(), command.end());
  return line;
}

TEST(AgentNodes, MayBeMoreThanTheSoftLimitOfOpenFilesWhichWorkersKeep) {
  constexpr int kAgents = 30;
  const std::string count = std::to_string(kAgents);
  Nodes nodes({"--nnodes", count}, "ulimit -n");
  Process first(with_limit("-S -n 24",
                           {in_build("bin/torchbridge"), "run", "--nnodes", count, "--rdzv-backend",
                            "c10d", "--rdzv-endpoint", nodes.endpoint(), "sh", "-c", "ulimit -n"}),
                kWithToken, nodes.folder() / "first");
  ASSERT_TRUE(eventually([&] { return can_connect(nodes.port()); }));
  for (int i = 1; i < kAgents; ++i) nodes.add();
  EXPECT_EQ(first.wait(seconds(60)), 0) << first.error();
  nodes.expect_all(0);
  EXPECT_EQ(first.out(), "24\n");
}

TEST(AgentNodes, WhereTheLimitOfOpenFilesIsReachedALineSaysSo) {
  Nodes nodes({"--nnodes", "30"}, "true");
  Process first(with_limit("-n 24", {in_build("bin/torchbridge"), "run", "--nnodes", "30",
                                     "--rdzv-backend", "c10d", "--rdzv-endpoint", nodes.endpoint(),
                                     "--rdzv-conf", "join_timeout=10", "true"}),
                kWithToken, nodes.folder() / "first");
  ASSERT_TRUE(eventually([&] { return can_connect(nodes.port()); }));
  for (int i = 1; i < 30; ++i) nodes.add({"--rdzv-conf", "join_timeout=10"});
  EXPECT_EQ(first.wait(seconds(60)), 1) << first.error();
  EXPECT_EQ(count_of(first.error(), "cannot accept more nodes: Too many open files"), 1)
      << first.error();
  EXPECT_NE(first.error().find(" nodes of 30: "), std::string::npos) << first.error();
  nodes.expect_all(1);
}

TEST(AgentNodes, OneThatComesTooLateLeavesTheSummaryOfTheRun) {
  TemporaryFolder folder;
  Nodes nodes({"--nnodes", "2", "--json-summary", folder / "summary.json"}, "true");
  nodes.add_all(2);
  nodes.expect_all(0);
  nodes.add({"--rdzv-conf", "join_timeout=1,is_host=false"});
  EXPECT_EQ(nodes.wait(2), 1);
  EXPECT_EQ(nlohmann::json::parse(folder.read("summary.json"))["result"], "succeeded");
}

TEST(AgentNodes, NobodyAtTheEndpointIsAnError) {
  Nodes nodes({"--nnodes", "2", "--rdzv-conf", "join_timeout=1,is_host=false"}, "echo started");
  nodes.add();
  nodes.expect_all(1);
  EXPECT_EQ(nodes[0].error(), "torchbridge: cannot connect to 127.0.0.1 port " +
                                  std::to_string(nodes.port()) + ": Connection refused\n");
}

struct RejectedCase {
  const char* name;
  Words more;
  const char* reason;
};

const RejectedCase kRejected[] = {
    {"AnotherRun", {"--rdzv-id", "other"}, "run 'none' has this endpoint, and this is run 'other'"},
    {"OtherNodes", {"--nnodes", "3"}, "it was given --nnodes 3 --max-restarts 0, and "},
    {"OtherRestarts", {"--max-restarts", "3"}, "it was given --nnodes 2 --max-restarts 3, and "},
    {"OneTooMany", {}, "the run 'none' has its 2 nodes ("},
};

class AgentNodesRejected : public testing::TestWithParam<RejectedCase> {};

TEST_P(AgentNodesRejected, AreNamedByALineAndTheRunGoesOn) {
  Nodes nodes({"--nnodes", "2", "--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=3"},
              kShowAndWait);
  nodes.add_all(2);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  Process& late = nodes.add(GetParam().more);
  EXPECT_EQ(nodes.wait(2), 1);
  EXPECT_NE(late.error().find(GetParam().reason), std::string::npos) << late.error();
  nodes.write("go");
  EXPECT_EQ(nodes.wait(0), 0) << nodes[0].error();
  EXPECT_EQ(nodes.wait(1), 0) << nodes[1].error();
}

INSTANTIATE_TEST_SUITE_P(, AgentNodesRejected, testing::ValuesIn(kRejected),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(AgentNodes, AnAgentOfTorchrunIsNamedAndTheRunGoesOn) {
  Nodes nodes({"--nnodes", "2"}, kShowAndWait);
  nodes.add_all(1);
  // How a client of PyTorch's TCPStore begins; tests/reference/agent_reference.py starts a real
  // one.
  const auto store_client = torchbridge::connect_to({"127.0.0.1", nodes.port()}, seconds(5));
  ASSERT_TRUE(store_client);
  ASSERT_EQ(write(store_client->descriptor(), "\x00\xce\xf7\x85\x3c", 5), 5);
  const std::string line =
      "an agent of torchrun on 127.0.0.1 tries to join, and cannot: start all nodes by torchbridge "
      "run; if it is a "
      "worker, its init_method has the coordinator's port: give env://\n";
  EXPECT_TRUE(eventually([&] { return count_of(nodes[0].error(), line) == 1; }))
      << nodes[0].error();
  nodes.add();
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  nodes.write("go");
  nodes.expect_all(0);
}

TEST(AgentNodes, AnotherProgramAtTheEndpointIsNamed) {
  Nodes nodes({"--nnodes", "2"}, "echo started");
  Process other({"/usr/bin/python3", "-c",
                 "import socket, sys\n"
                 "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
                 "print('up', flush=True)\n"
                 "while True:\n"
                 "  peer = server.accept()[0]\n"
                 "  peer.sendall(b'220 ready\\n')\n"
                 "  peer.close()\n",
                 std::to_string(nodes.port())},
                {}, nodes.folder() / "other");
  ASSERT_TRUE(eventually([&] { return other.out() == "up\n"; })) << other.error();
  nodes.add();
  nodes.expect_all(1);
  EXPECT_NE(nodes[0].error().find(nodes.endpoint() +
                                  " does not answer as a coordinator of torchbridge run does"),
            std::string::npos)
      << nodes[0].error();
}

TEST(AgentNodes, WhatConnectsAndIsNoAgentChangesNothing) {
  Nodes nodes({"--nnodes", "2"}, kShowAndWait);
  nodes.add_all(1);
  const std::string kNoAgent[] = {"GET / HTTP/1.1\r\n\r\n",
                                  std::string(1 << 20, 'x'),
                                  "{}\n",
                                  "{\"kind\":\"ended\"}\n",
                                  "{\"kind\":\"join\",\"run_id\":5}\n",
                                  std::string(100'000, '[') + "\n",
                                  std::string("\0\xff\n", 3),
                                  ""};
  std::vector<torchbridge::Socket> open;
  for (const std::string& bytes : kNoAgent) {
    auto socket = torchbridge::connect_to({"127.0.0.1", nodes.port()}, seconds(5));
    ASSERT_TRUE(socket);
    (void)!send(socket->descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    open.push_back(std::move(*socket));
  }
  nodes.add();
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2")) << nodes.errors();
  nodes.write("go");
  nodes.expect_all(0);
  EXPECT_EQ(nodes.errors(), "");
}

TEST(AgentNodes, WithoutATokenTheCoordinatorSaysWhoCanJoin) {
  Nodes nodes({"--nnodes", "2", "--rdzv-id", "job"}, kShowAndWait);
  nodes.forget_token();
  nodes.add_all(1);
  nodes.add({"--rdzv-id", "other"});
  EXPECT_EQ(nodes.wait(1), 1);
  EXPECT_EQ(count_of(nodes[1].error(), "does not accept the run id given here: "), 1)
      << nodes[1].error();
  nodes.add();
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2")) << nodes.errors();
  Process status({in_build("bin/torchbridge"), "status", "--rdzv-id", "job", nodes.endpoint()}, {},
                 nodes.folder() / "status");
  EXPECT_EQ(status.wait(seconds(20)), 0) << status.error();
  EXPECT_EQ(count_of(status.out(), " running "), 2) << status.out();
  nodes.write("go");
  EXPECT_EQ(nodes.wait(0), 0);
  EXPECT_EQ(nodes.wait(2), 0);
  EXPECT_EQ(nodes[2].error(), "");
  EXPECT_EQ(count_of(nodes[0].error(), "this run has no token: whoever reaches 127.0.0.1 port " +
                                           std::to_string(nodes.port()) +
                                           " and gives the run's id can join it"),
            1)
      << nodes[0].error();
}

TEST(AgentNodes, WithoutATokenAndAnIdTheCoordinatorSaysThatAnybodyCanJoin) {
  Nodes nodes({"--nnodes", "2", "--rdzv-id", "none"}, "true");
  nodes.forget_token();
  nodes.add_all(2);
  nodes.expect_all(0);
  EXPECT_EQ(count_of(nodes[0].error(), "this run has no token: whoever reaches 127.0.0.1 port " +
                                           std::to_string(nodes.port()) +
                                           " can join it, because its id is the default, and read "
                                           "its state: give all nodes the same "),
            1)
      << nodes[0].error();
}

TEST(AgentNodes, WithAnotherTokenAnAgentNamesItAndTheRunGoesOn) {
  TemporaryFolder folder;
  folder.write("token", kToken + "\n");
  folder.write("other", "another token that is long enough");
  for (const char* name : {"token", "other"}) ASSERT_EQ(chmod((folder / name).c_str(), 0600), 0);
  Nodes nodes({"--nnodes", "2"}, kShowAndWait + "echo ${TORCHBRIDGE_RDZV_TOKEN:-none}");
  nodes.add_all(1);
  nodes.add({"--rdzv-token-file", folder / "other"});
  EXPECT_EQ(nodes.wait(1), 1);
  EXPECT_EQ(count_of(nodes[1].error(), "does not accept the token given here: "), 1)
      << nodes[1].error();
  EXPECT_EQ(count_of(nodes[1].error(), "--rdzv-token-file or TORCHBRIDGE_RDZV_TOKEN"), 1)
      << nodes[1].error();
  EXPECT_EQ(count_of(nodes[0].error(), "has no valid proof and gets no answer"), 1)
      << nodes[0].error();
  nodes.forget_token();
  nodes.add();
  EXPECT_EQ(nodes.wait(2), 1);
  EXPECT_EQ(count_of(nodes[2].error(), "does not accept the run id given here: "), 1)
      << nodes[2].error();
  nodes.add({"--rdzv-token-file", folder / "token"});
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2")) << nodes.errors();
  nodes.write("go");
  EXPECT_EQ(nodes.wait(0), 0);
  EXPECT_EQ(nodes.wait(3), 0);
  EXPECT_EQ(count_of(nodes.errors() + nodes[0].out(), kToken), 0);
  EXPECT_EQ(nodes[0].out().substr(nodes[0].out().find('\n') + 1), "none\n")
      << "the workers do not get it";
}

TEST(AgentNodes, TheHealthOfTheRunIsShownByStatus) {
  Nodes nodes({"--nnodes", "2:3", "--active", "2", "--rdzv-id", "job"}, kShowAndWait);
  nodes.add_all(3);
  ASSERT_TRUE(nodes.eventually_runs({"0 0/2", "0 1/2"}, "2"));
  const auto status = [&](Words options) {
    Words command = {in_build("bin/torchbridge"), "status", nodes.endpoint()};
    command.insert(command.end(), options.begin(), options.end());
    Process process(command, kWithToken, nodes.folder() / "status");
    EXPECT_EQ(process.wait(seconds(20)), 0) << process.error();
    return process.out();
  };
  ASSERT_TRUE(eventually([&] { return count_of(status({}), " waiting ") == 1; }));
  const auto json = nlohmann::json::parse(status({"--json"}));
  EXPECT_EQ(json.at("run_id"), "job");
  EXPECT_EQ(json.at("phase"), "running");
  EXPECT_EQ(json.at("nodes").size(), 3u);
  const std::string table = status({});
  EXPECT_EQ(count_of(table, " running "), 2) << table;
  EXPECT_EQ(count_of(table, " waiting "), 1) << table;
  nodes.write("go");
  nodes.expect_all(0);
}

}  // namespace
