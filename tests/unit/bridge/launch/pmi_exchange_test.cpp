// With a launcher of a few lines that implements PMI-1 as Hydra does.
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "bridge/launch/launcher_exchange.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;

class FakeHydra {
 public:
  explicit FakeHydra(int ranks, std::string init_answer =
                                    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
      : init_answer_(std::move(init_answer)), ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      int pair[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
      clients_.push_back(pair[0]);
      threads_.emplace_back([this, server = pair[1]] { serve(server); });
    }
  }
  ~FakeHydra() { end_of_programs(); }

  // What the kernel does when the ranks' programs exit. Returns how many conversations ended with a
  // good-bye.
  int end_of_programs() {
    for (const int client : clients_) close(client);
    for (auto& thread : threads_) thread.join();
    clients_.clear();
    threads_.clear();
    return goodbyes_;
  }

  EnvMap environment(int rank) const { return {{"PMI_FD", std::to_string(clients_[rank])}}; }

 private:
  void serve(int socket) {
    std::string text;
    char byte;
    while (read(socket, &byte, 1) == 1) {
      if (byte != '\n') {
        text += byte;
        continue;
      }
      const std::string reply = answer(text) + "\n";
      if (send(socket, reply.data(), reply.size(), MSG_NOSIGNAL) < 0 || text == "cmd=finalize")
        break;
      text.clear();
    }
    close(socket);
    const std::lock_guard lock(mutex_);
    if (text == "cmd=finalize") ++goodbyes_;
  }

  static std::string word(const std::string& line, const std::string& name) {
    const auto start = line.find(name + "=");
    return start == line.npos ? ""
                              : line.substr(start + name.size() + 1,
                                            line.find(' ', start) - start - name.size() - 1);
  }

  std::string answer(const std::string& line) {
    std::unique_lock lock(mutex_);
    const std::string command = word(line, "cmd");
    if (command == "init") return init_answer_;
    if (command == "finalize") return "cmd=finalize_ack";
    if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1";
    if (command == "put") {
      const bool is_new = values_.emplace(word(line, "key"), word(line, "value")).second;
      return std::string("cmd=put_result rc=") +
             (is_new ? "0 msg=success" : "-1 msg=duplicate_key");
    }
    if (command == "get") {
      const auto found = values_.find(word(line, "key"));
      if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown";
      return "cmd=get_result rc=0 msg=success value=" + found->second;
    }
    const int round = arrived_++ / ranks_;
    all_here_.notify_all();
    all_here_.wait_for(lock, std::chrono::seconds(2),
                       [&] { return arrived_ >= (round + 1) * ranks_; });
    return "cmd=barrier_out";
  }

  std::string init_answer_;
  int ranks_, arrived_ = 0, goodbyes_ = 0;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::map<std::string, std::string> values_;
  std::vector<int> clients_;
  std::vector<std::thread> threads_;
};

TEST(PmiExchange, EveryRankGetsEveryValueAlsoTheSecondTime) {
  FakeHydra hydra(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&hydra, rank] {
      for (const char* text : {"any bytes: \n\xff=", "again"}) {
        auto exchange = connect_pmi(hydra.environment(rank), rank, 3);
        ASSERT_TRUE(exchange) << exchange.error().message;
        const auto values =
            (*exchange)->all_gather(text + std::to_string(rank), milliseconds(10000));
        ASSERT_TRUE(values) << values.error().message;
        for (int peer = 0; peer < 3; ++peer)
          EXPECT_EQ((*values)[peer], text + std::to_string(peer));
      }
    });
  }
  for (auto& thread : ranks) thread.join();
  EXPECT_EQ(hydra.end_of_programs(), 3)
      << "Hydra kills the other ranks when one leaves without a good-bye";
}

TEST(PmiExchange, ErrorContainsTheTimeout) {
  FakeHydra hydra(2);
  auto exchange = connect_pmi(hydra.environment(0), 0, 2);
  ASSERT_TRUE(exchange) << exchange.error().message;
  const auto values = (*exchange)->all_gather("x", milliseconds(200));
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().message,
            "PMI: the launcher did not answer; not all 2 ranks arrived within 0.2 s: does every "
            "rank run this program?");
}

TEST(PmiExchange, RejectsPeersThatAreNoLauncher) {
  EXPECT_EQ(connect_pmi({}, 0, 2).error().message, "PMI_FD is not set");
  EXPECT_EQ(connect_pmi({{"PMI_FD", "x"}}, 0, 2).error().message,
            "PMI_FD='x': expected an integer from 0 to 2147483647");
  EXPECT_NE(connect_pmi({{"PMI_FD", "987654"}}, 0, 2)
                .error()
                .message.find("PMI_FD='987654' is not an open socket"),
            std::string::npos);
  FakeHydra other(1, "hello");
  EXPECT_EQ(connect_pmi(other.environment(0), 0, 1).error().message,
            "PMI: the launcher answered 'hello' to 'cmd=init pmi_version=1 pmi_subversion=1'");
}

}  // namespace
}  // namespace torchbridge
