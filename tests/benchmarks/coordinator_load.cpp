// What one coordinator of `torchbridge run` takes for N agents: coordinator_load N
//
// The coordinator is a process of its own; the agents are connections of this one, on loopback.
// Prints one JSON object: seconds from the first connection until all have begun the first round,
// seconds from one worker's failure until all have begun the next round, bytes over the wire for
// both, and the memory of the coordinator.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "bridge/bootstrap/descriptor_limit.h"
#include "bridge/coordination/coordinator_client.h"
#include "bridge/coordination/coordinator_server.h"

using namespace torchbridge;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int milliseconds_until(Clock::time_point deadline) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 1000));
}

RunKey key() { return RunKey::of_token("a token of the load"); }

[[noreturn]] void coordinate(Socket listener, const RunShape& shape) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CoordinatorRules rules;
  rules.shape = shape;
  rules.run_id = "load";
  auto server =
      CoordinatorServer::open(std::move(listener), key(), Coordinator(rules, {}, 0, Clock::now()));
  if (!server) std::exit(EXIT_FAILURE);
  for (;;) {
    pollfd entry{server->descriptor(), POLLIN, 0};
    poll(&entry, 1, milliseconds_until(server->next_deadline()));
    server->carry(Clock::now());
  }
}

class Agents {
 public:
  Agents(int count, const Endpoint& coordinator, const RunShape& shape) {
    Join join;
    join.run_id = "load";
    join.shape = shape;
    join.pid = 1;
    join.workers = 8;
    for (int i = 0; i < count; ++i) {
      join.host = "node" + std::to_string(i);
      join.order = i;
      clients_.emplace_back(coordinator, key(), join, Clock::now(),
                            Clock::now() + std::chrono::seconds(600));
    }
    is_ready_.resize(clients_.size());
  }

  // Until all have begun a round.
  void run_until_all_begin(const std::string& phase) {
    std::size_t begun = 0;
    while (begun < clients_.size()) {
      wait();
      for (std::size_t i = 0; i < clients_.size(); ++i) {
        CoordinatorClient& client = clients_[i];
        if (entries_[i].revents == 0 && Clock::now() < client.next_deadline()) continue;
        client.carry(Clock::now());
        if (client.failure()) fail(phase + ": " + *client.failure());
        if (client.has_joined() && !is_ready_[i]) be_ready(i);
        for (const AgentMessage& message : client.take_messages()) {
          if (std::holds_alternative<StartRound>(message)) ++begun;
          if (!std::holds_alternative<StopWorkers>(message)) continue;
          client.send(AttemptEnded{});
          be_ready(i);
        }
      }
    }
  }

  void fail_worker() {
    WorkerReport worker;
    worker.host = "node0";
    worker.pid = 1;
    worker.wait_status = 1 << 8;
    AttemptReport report;
    report.failures.push_back(worker);
    clients_.front().send(WorkerFailed{worker});
    clients_.front().send(AttemptEnded{report});
    be_ready(0);
  }

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const CoordinatorClient& client : clients_) {
      tcp_info info{};
      socklen_t size = sizeof info;
      getsockopt(client.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size);
      sum += bytes_of(info);
    }
    return sum;
  }

 private:
  [[noreturn]] static void fail(const std::string& why) {
    std::fprintf(stderr, "coordinator_load: %s\n", why.c_str());
    std::exit(EXIT_FAILURE);
  }
  static std::uint64_t bytes_of(const tcp_info& info) {
    return info.tcpi_bytes_acked + info.tcpi_bytes_received;
  }
  void be_ready(std::size_t i) {
    is_ready_[i] = true;
    clients_[i].send(Ready{{"10.0.0.1", 20000}});
  }
  void wait() {
    entries_.clear();
    auto deadline = Clock::time_point::max();
    for (const CoordinatorClient& client : clients_) {
      entries_.push_back({client.descriptor(), static_cast<short>(client.events()), 0});
      deadline = std::min(deadline, client.next_deadline());
    }
    poll(entries_.data(), entries_.size(), milliseconds_until(deadline));
  }

  std::vector<CoordinatorClient> clients_;
  std::vector<bool> is_ready_;
  std::vector<pollfd> entries_;
};

long memory_kb(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atol(line.c_str() + 6);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count < 1) {
    std::fprintf(stderr, "usage: coordinator_load N\n");
    return 2;
  }
  const RaisedDescriptorLimit limit;
  const RunShape shape{count, count, count, 9};
  auto listener = listen_on({"127.0.0.1", 0});
  if (!listener) return EXIT_FAILURE;
  const Endpoint coordinator{"127.0.0.1", *bound_port(*listener)};
  const pid_t server = fork();
  if (server == 0) coordinate(std::move(*listener), shape);
  const auto begin = Clock::now();
  Agents agents(count, coordinator, shape);
  agents.run_until_all_begin("first round");
  const double first = seconds_since(begin);
  const std::uint64_t first_bytes = agents.bytes();
  const auto failure = Clock::now();
  agents.fail_worker();
  agents.run_until_all_begin("second round");
  std::printf(
      "{\"agents\": %d, \"first_round_s\": %.4f, \"first_round_bytes\": %llu, \"restart_s\": %.4f, "
      "\"restart_bytes\": %llu, \"coordinator_kb\": %ld}\n",
      count, first, static_cast<unsigned long long>(first_bytes), seconds_since(failure),
      static_cast<unsigned long long>(agents.bytes() - first_bytes), memory_kb(server));
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}
