#include "bridge/coordination/coordinator_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "bridge/coordination/coordinator_client.h"

using namespace torchbridge;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const RunKey kKey = RunKey::of_token("the token of this run");
const std::string kNonce(32, 'a');

// A coordinator of a run of two nodes, with a clock of its own.
class ServedRun : public testing::Test {
 protected:
  void SetUp() override { open(Welcome()); }
  void open(const Welcome& keep_alive) {
    CoordinatorRules rules;
    rules.keep_alive = keep_alive;
    rules.run_id = "run";
    rules.shape = {2, 2, 2, 0};
    auto listener = listen_on({"127.0.0.1", 0});
    ASSERT_TRUE(listener);
    port_ = *bound_port(*listener);
    auto server =
        CoordinatorServer::open(std::move(*listener), kKey, Coordinator(rules, {}, 0, now_));
    ASSERT_TRUE(server);
    server_.emplace(std::move(*server));
  }

  Socket connect() {
    auto socket = connect_to({"127.0.0.1", port_}, seconds(5));
    EXPECT_TRUE(socket);
    return std::move(*socket);
  }
  Socket connect_from(const std::string& host) {
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port_));
    inet_pton(AF_INET, host.c_str(), &from.sin_addr);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return socket;
  }
  // What has come; the connection may be closed behind it.
  std::string come(const Socket& socket) {
    server_->carry(now_);
    std::string text(65536, 0);
    const ssize_t size = recv(socket.descriptor(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }
  void send(const Socket& socket, const std::string& text) {
    (void)!::send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // At its end, however it was closed; what came before is discarded.
  bool is_closed(const Socket& socket) {
    server_->carry(now_);
    char bytes[4096];
    for (;;) {
      const ssize_t size = recv(socket.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (size <= 0) return size == 0 || errno == ECONNRESET;
    }
  }
  std::string challenge(const Socket& socket) {
    const std::string line = come(socket);
    EXPECT_TRUE(line.ends_with('\n')) << line;
    return line.substr(0, line.find('\n'));
  }
  // The proof of who has `key`.
  std::string proof(const Socket& socket, const RunKey& key, ConnectionPurpose purpose) {
    return ClientProof(key, purpose, challenge(socket), kNonce).answer() + "\n";
  }
  static std::string join_line(const std::string& host) {
    return line_of(Join{.run_id = "run", .shape = {2, 2, 2, 0}, .host = host, .pid = 1});
  }
  Socket member(const std::string& host) {
    Socket socket = connect();
    send(socket, proof(socket, kKey, ConnectionPurpose::kAgent));
    EXPECT_TRUE(come(socket).starts_with("coordinator "));
    send(socket, join_line(host));
    EXPECT_NE(come(socket).find("\"kind\":\"welcome\""), std::string::npos);
    return socket;
  }
  void pass(milliseconds time) {
    for (const auto end = now_ + time; now_ < end;
         now_ = std::max(now_ + milliseconds(1), std::min(server_->next_deadline(), end))) {
      server_->carry(now_);
    }
    server_->carry(now_);
  }
  bool status_has(const std::string& host) const {
    return server_->coordinator().status_json().find("\"" + host + "\"") != std::string::npos;
  }

  CoordinatorServer::Time now_{};
  int port_ = 0;
  std::optional<CoordinatorServer> server_;
};

TEST_F(ServedRun, AnswersWhoProvesThatItBelongsToTheRun) {
  const Socket agent = member("n1");
  EXPECT_TRUE(status_has("n1"));
  const Socket status = connect();
  send(status, proof(status, kKey, ConnectionPurpose::kStatus));
  EXPECT_NE(come(status).find("\"kind\":\"status\""), std::string::npos);
  EXPECT_TRUE(is_closed(status));
  EXPECT_EQ(server_->take_lines(), std::vector<std::string>());
}

// Each gets the challenge, and not a byte more.
TEST_F(ServedRun, AnswersNobodyElse) {
  const Socket agent = member("n1");
  const std::string lines[] = {"{\"kind\":\"status?\",\"run_id\":\"\"}\n",
                               join_line("n2"),
                               "{\"kind\":\"ended\"}\n",
                               "GET / HTTP/1.1\r\n\r\n",
                               "\n",
                               "agent " + kNonce + " " + std::string(64, '0') + "\n",
                               std::string(1 << 20, 'x'),
                               std::string("\0\xff\n", 3)};
  for (const std::string& line : lines) {
    const Socket stranger = connect();
    ASSERT_TRUE(protocol_of(challenge(stranger)));
    send(stranger, line);
    EXPECT_EQ(come(stranger), "") << line.substr(0, 40);
    EXPECT_TRUE(is_closed(stranger)) << line.substr(0, 40);
  }
  for (const auto purpose : {ConnectionPurpose::kAgent, ConnectionPurpose::kStatus}) {
    const Socket stranger = connect();
    send(stranger, proof(stranger, RunKey::of_run_id("run"), purpose) + join_line("n2"));
    EXPECT_EQ(come(stranger), "");
    EXPECT_TRUE(is_closed(stranger));
  }
  EXPECT_FALSE(status_has("n2"));
  const auto printed = server_->take_lines();
  ASSERT_EQ(printed.size(), 1u) << "however many come";
  EXPECT_TRUE(printed[0].starts_with(
      "a program on 127.0.0.1 has no valid proof and gets no answer: if it is a node"));
}

// A stranger does not use up the line that names a node with another token.
TEST_F(ServedRun, NamesEachAddressOnceAndNotMoreThanSixteen) {
  for (int host = 1; host <= 20; ++host) {
    for (int i = 0; i < 2; ++i) {
      const Socket stranger = connect_from("127.0.1." + std::to_string(host));
      ASSERT_TRUE(protocol_of(challenge(stranger)));
      send(stranger, "agent " + kNonce + " " + std::string(64, '0') + "\n");
      EXPECT_TRUE(is_closed(stranger));
    }
  }
  const auto printed = server_->take_lines();
  ASSERT_EQ(printed.size(), 16u);
  for (int host = 1; host <= 16; ++host)
    EXPECT_TRUE(printed[host - 1].starts_with("a program on 127.0.1." + std::to_string(host) +
                                              " has no valid proof"));
}

TEST_F(ServedRun, TakesNoProofTwice) {
  Socket first = connect();
  const std::string seen = proof(first, kKey, ConnectionPurpose::kAgent);
  send(first, seen);
  EXPECT_TRUE(come(first).starts_with("coordinator "));
  const Socket second = connect();
  (void)challenge(second);
  send(second, seen);
  EXPECT_EQ(come(second), "");
  EXPECT_TRUE(is_closed(second));
}

// Such as a check of the port, or an agent whose link is down since.
TEST_F(ServedRun, ClosesOneThatIsSilentAndKeepsNobodyBusy) {
  const Socket silent = connect();
  for (const auto end = now_ + 2 * kProofDeadline; now_ < end;
       now_ = std::min(server_->next_deadline(), end)) {
    server_->carry(now_);
    ASSERT_GT(server_->next_deadline(), now_);
  }
  EXPECT_TRUE(is_closed(silent));
}

TEST_F(ServedRun, ClosesOneThatDoesNotJoinInTimeWhateverItSends) {
  const Socket slow = connect(), proven = connect();
  send(proven, proof(proven, kKey, ConnectionPurpose::kAgent));
  for (int i = 0; i < 11; ++i) {
    send(slow, "x");
    send(proven, line_of(Alive{1, 0}));
    pass(milliseconds(kProofDeadline) / 10);
  }
  EXPECT_TRUE(is_closed(slow));
  EXPECT_TRUE(is_closed(proven));
}

TEST_F(ServedRun, AnswersAnAgentAlsoWhereManyAreSilent) {
  const Socket member_before = member("n1");
  std::vector<Socket> silent;
  for (int i = 0; i < 3 * kMostStrangers; ++i) silent.push_back(connect());
  for (int i = 0; i < 3 * kMostStrangers; ++i) server_->carry(now_);
  const Socket agent = connect();
  send(agent, proof(agent, kKey, ConnectionPurpose::kAgent));
  EXPECT_TRUE(come(agent).starts_with("coordinator "));
  int open = 0;
  for (const Socket& socket : silent) open += !is_closed(socket);
  EXPECT_LE(open, kMostStrangers + 2);
  EXPECT_TRUE(is_closed(silent.front()));
  EXPECT_FALSE(is_closed(silent.back()));
  EXPECT_FALSE(is_closed(member_before));
}

// Also where the interval is shorter than the time that a connection has to join.
TEST_F(ServedRun, ShowsANewMemberWithinTheIntervalThatItIsAlive) {
  open({1, 2});
  const Socket agent = member("n1");
  (void)come(agent);
  pass(milliseconds(1500));
  EXPECT_NE(come(agent).find("\"kind\":\"alive\""), std::string::npos);
}

TEST_F(ServedRun, LosesAMemberThatSendsWhatNoAgentSends) {
  const std::string bad[] = {"{\"kind\":\"ended\",\"start_error\":\"x\",\"start_exit_code\":0}\n",
                             "coordinator 0\n", std::string((1 << 20) + 2, 'x')};
  for (const std::string& line : bad) {
    const Socket agent = member("n1");
    for (std::size_t at = 0; at < line.size(); at += 65536) {
      send(agent, line.substr(at, 65536));
      server_->carry(now_);
    }
    EXPECT_TRUE(is_closed(agent)) << line.substr(0, 60);
    EXPECT_FALSE(status_has("n1"));
    const auto printed = server_->take_lines();
    ASSERT_EQ(printed.size(), 1u);
    EXPECT_TRUE(printed[0].starts_with("node n1 (pid 1) is lost: it sent ")) << printed[0];
  }
}

// Carries both ends until the client has joined or given up.
std::optional<std::string> failure_of_client(CoordinatorServer& server, CoordinatorServer::Time now,
                                             int port, const RunKey& key, bool& joined,
                                             bool& rejected) {
  Join join{.run_id = "run", .shape = {2, 2, 2, 0}, .host = "n2", .pid = 1};
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  CoordinatorClient client({"127.0.0.1", port}, key, join, std::chrono::steady_clock::now(), end);
  while (!client.failure() && !client.has_joined() && std::chrono::steady_clock::now() < end) {
    server.carry(now);
    pollfd entry{client.descriptor(), static_cast<short>(client.events()), 0};
    poll(&entry, client.descriptor() >= 0 ? 1 : 0, 10);
    client.carry(std::chrono::steady_clock::now());
  }
  joined = client.has_joined();
  rejected = client.is_rejected();
  return client.failure();
}

TEST_F(ServedRun, ItsAgentsJoinAndThoseWithAnotherTokenNameIt) {
  bool joined = false, rejected = false;
  EXPECT_FALSE(failure_of_client(*server_, now_, port_, kKey, joined, rejected));
  EXPECT_TRUE(joined);
  const auto other =
      failure_of_client(*server_, now_, port_, RunKey::of_token("another token"), joined, rejected);
  ASSERT_TRUE(other);
  EXPECT_TRUE(rejected) << "it does not try again for minutes";
  EXPECT_NE(other->find("does not accept the token given here: the coordinator has another one, or "
                        "none: give all nodes "
                        "the same --rdzv-token-file or TORCHBRIDGE_RDZV_TOKEN"),
            std::string::npos)
      << *other;
  const auto none =
      failure_of_client(*server_, now_, port_, RunKey::of_run_id("run"), joined, rejected);
  ASSERT_TRUE(none);
  EXPECT_NE(none->find("does not accept the run id given here"), std::string::npos) << *none;
}

// One that is stopped reads the end when it continues.
TEST_F(ServedRun, CountsHowOftenAMemberIsSilentAfterTheEndAndNamesItOnce) {
  open({.keep_alive_interval = 1, .keep_alive_attempts = 2});
  const Socket first = member("n0");
  Socket second = member("n1");
  server_->fail("reason", now_);
  EXPECT_EQ(server_->take_lines(), std::vector<std::string>{"reason"});
  pass(milliseconds(1900));
  EXPECT_EQ(server_->silences_of_members(), 0);
  send(second, line_of(Alive{}));
  pass(milliseconds(200));
  EXPECT_EQ(server_->silences_of_members(), 0) << "n1 answers";
  second = Socket();
  pass(milliseconds(100));
  EXPECT_EQ(server_->silences_of_members(), 1);
  pass(seconds(2));
  EXPECT_EQ(server_->silences_of_members(), 2);
  EXPECT_EQ(server_->take_lines(),
            std::vector<std::string>{"node n0 (pid 1) is lost: it sent nothing for 2 s"});
  EXPECT_NE(come(first).find("\"kind\":\"end-run\""), std::string::npos);
  send(first, line_of(Alive{}));
  pass(milliseconds(1));
  EXPECT_EQ(server_->silences_of_members(), 0);
}

// It would wait for another coordinator until join_timeout.
TEST_F(ServedRun, WhoIsOneTooManyDoesNotWaitWhereTheRunHasEnded) {
  open({.keep_alive_interval = 1, .keep_alive_attempts = 1});
  const Socket first = member("n0"), second = member("n1");
  const Join join{.run_id = "run", .shape = {2, 2, 2, 0}, .host = "n2", .pid = 1};
  const auto start = std::chrono::steady_clock::now();
  auto now = start;
  CoordinatorClient client({"127.0.0.1", port_}, kKey, join, now, now + seconds(600));
  const auto carry = [&](milliseconds time) {
    if (server_) server_->carry(now_);
    pollfd entry{client.descriptor(), static_cast<short>(client.events()), 0};
    poll(&entry, client.descriptor() >= 0 ? 1 : 0, 10);
    client.carry(now += time);
  };
  while (client.problem().empty() && now < start + seconds(1)) carry(milliseconds(1));
  const std::string reason = "rejects this node: the run 'run' has its 2 nodes (";
  EXPECT_NE(client.problem().find(reason), std::string::npos) << client.problem();
  EXPECT_FALSE(client.failure()) << "a node may be lost, and this one take its place";
  server_.reset();
  while (!client.failure() && now < start + seconds(20)) carry(milliseconds(100));
  ASSERT_TRUE(client.failure());
  EXPECT_NE(client.failure()->find(reason), std::string::npos) << *client.failure();
  EXPECT_TRUE(client.is_rejected());
}

}  // namespace
