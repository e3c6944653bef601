// The all-gather of a step with `check` over many nodes: rank 0's node is a process, the others are
// threads of some further processes, in a network namespace of their own, whose counters give the
// traffic. Prints one line; exits with 1 where a node did not get the answer, or connected more
// often than a pause that doubles up to 2 s allows. Usage: bootstrap_nodes NODES [SECONDS]: rank
// 0's node starts SECONDS after the others
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <latch>
#include <map>
#include <sstream>
#include <thread>

#include "bridge/base/env_map.h"
#include "bridge/bootstrap/all_gather.h"
#include "bridge/net/socket.h"

namespace {

using namespace torchbridge;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kTimeout{5};
constexpr std::size_t kStack = 1024 * 1024;
// Each with four descriptors; the hard limit is often 20,000 or less.
constexpr int kNodesOfAProcess = 3000;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "bootstrap_nodes: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// A network namespace with this process alone.
void enter_own_network() {
  if (geteuid() != 0) {
    std::printf("SKIPPED: a network namespace needs root\n");
    std::exit(77);
  }
  if (unshare(CLONE_NEWNET) != 0) give_up("cannot create a network namespace");
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(socket.descriptor(), SIOCSIFFLAGS, &loopback) != 0) give_up("lo");
  // All nodes have one address.
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "1024 65535";
}

void use_small_stacks() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_setattr_default_np(&attributes);
}

// "Tcp.ActiveOpens" and all other counters of this namespace. Each group is a line of names and one
// of values.
std::map<std::string, std::int64_t> counters() {
  std::map<std::string, std::int64_t> result;
  for (const char* path : {"/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"}) {
    std::ifstream file(path);
    std::string names, values;
    while (std::getline(file, names) && std::getline(file, values)) {
      std::istringstream name_words(names), value_words(values);
      std::string group, name, same_group;
      name_words >> group;
      value_words >> same_group;
      group.back() = '.';
      std::int64_t value = 0;
      while (name_words >> name && value_words >> value) result[group + name] = value;
    }
  }
  return result;
}

BootstrapGroup group_of(int node, int nodes) {
  BootstrapGroup group;
  group.job = "bootstrap_nodes";
  group.rank = node;
  group.size = nodes;
  group.node_key = "bootstrap_nodes " + std::to_string(getpid()) + " " + std::to_string(node);
  group.listens = node == 0;
  group.listen_at = "127.0.0.1";
  group.ports = {29500, 29501, 29502};
  if (node != 0) group.first_hosts = {"127.0.0.1"};
  return group;
}

// All ports of rank 0's node, then a pause. The pauses double from 2 ms to 2 s; each is cut by up
// to a half.
double most_calls_of_a_node(double delay) { return 3 * (std::log2(2.0 / 0.002) + 2 + delay); }

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// The results of the processes, in shared memory.
struct Outcome {
  std::atomic<double> listening, answered_last, cpu_of_first;
  std::atomic<int> failed;
};

void run_node(int node, int nodes, Outcome& outcome) {
  const auto gathered = all_gather(group_of(node, nodes), "", kTimeout,
                                   [](Values) { return Result<Values>(Values{"all here"}); });
  const double now = seconds_now();
  for (double last = outcome.answered_last;
       last < now && !outcome.answered_last.compare_exchange_weak(last, now);) {
  }
  if (gathered && gathered->values == Values{"all here"}) return;
  if (++outcome.failed > 1) return;
  std::fprintf(stderr, "bootstrap_nodes: node %d: %s\n", node,
               gathered ? gathered->unreached.c_str() : gathered.error().message.c_str());
}

// Starts the threads of nodes `first` to `end` - 1, writes a byte to `ready`, and releases them
// when `go` is closed.
int run_nodes(int first, int end, int nodes, double delay, Outcome& outcome, int ready, int go) {
  std::latch released(1);
  std::vector<std::thread> threads;
  for (int node = first; node < end; ++node) {
    threads.emplace_back([&, node] {
      released.wait();
      if (node == 0) {
        std::this_thread::sleep_for(std::chrono::duration<double>(delay));
        outcome.listening = seconds_now();
      }
      run_node(node, nodes, outcome);
    });
  }
  char byte = 0;
  if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 0) return 1;
  released.count_down();
  for (std::thread& thread : threads) thread.join();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  if (first == 0) outcome.cpu_of_first = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return 0;
}

void run_processes(int nodes, double delay, Outcome& outcome) {
  int ready[2], go[2];
  if (pipe(ready) != 0 || pipe(go) != 0) give_up("pipe");
  int processes = 0;
  for (int first = 0, end = 1; first < nodes;
       first = end, end = std::min(nodes, first + kNodesOfAProcess), ++processes) {
    if (fork() != 0) continue;
    close(go[1]);
    _exit(run_nodes(first, end, nodes, delay, outcome, ready[1], go[0]));
  }
  close(ready[1]);
  char byte = 0;
  for (int i = 0; i < processes; ++i) {
    if (read(ready[0], &byte, 1) != 1) give_up("a process is missing");
  }
  close(go[1]);
  for (int status = 0; wait(&status) > 0;) {
    if (status != 0) ++outcome.failed;
  }
}

int run(int nodes, double delay) {
  void* shared =
      mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) give_up("mmap");
  Outcome& outcome = *new (shared) Outcome{};
  auto before = counters();
  run_processes(nodes, delay, outcome);
  auto after = counters();
  const auto more = [&](const char* name) { return after[name] - before[name]; };
  const auto calls = more("Tcp.ActiveOpens");
  std::printf(
      "nodes=%d delay_s=%.0f seconds=%.3f cpu_of_first_s=%.3f calls=%ld accepted=%ld syn=%ld "
      "overflows=%ld bytes=%ld failed=%d\n",
      nodes, delay, outcome.answered_last - outcome.listening, outcome.cpu_of_first.load(), calls,
      more("Tcp.PassiveOpens"), calls + more("TcpExt.TCPSynRetrans"),
      more("TcpExt.ListenOverflows"), more("IpExt.OutOctets"), outcome.failed.load());
  const double most = most_calls_of_a_node(delay) * nodes;
  if (static_cast<double>(calls) > most) {
    std::fprintf(stderr, "bootstrap_nodes: %ld calls, expected at most %.0f\n", calls, most);
    return 1;
  }
  return outcome.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto nodes = parse_integer(argc > 1 ? argv[1] : "", 2, 100'000);
  const auto delay = parse_integer(argc > 2 ? argv[2] : "0", 0, 200);
  if (!nodes || !delay || argc > 3) {
    std::fprintf(
        stderr,
        "usage: bootstrap_nodes NODES [SECONDS]: rank 0's node starts SECONDS after the others\n");
    return 2;
  }
  enter_own_network();
  use_small_stacks();
  return run(static_cast<int>(*nodes), static_cast<double>(*delay));
}
