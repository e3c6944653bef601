// So many clients meet at one store as the ranks of a job do: rank 0 with the store in a process of
// its own, every other rank a thread of this one. Prints one line: when the last of them knew that
// all are there, and the CPU time of both processes. Usage: rendezvous_clients RANKS
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <thread>

#include <torchbridge/errors.h>

#include "bridge/bootstrap/descriptor_limit.h"
#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/value_or_throw.h"
#include "trainer_template/runtime/rendezvous/join_store.h"

namespace {

using namespace torchbridge;
using namespace torchbridge::train;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{240};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Launch launch_of(int rank, int ranks, int port, Socket socket = {}) {
  Launch launch;
  launch.env.layout = {
      .rank = rank, .world_size = ranks, .local_rank = rank, .local_world_size = ranks};
  launch.env.master = {"127.0.0.1", port};
  launch.store_socket = std::move(socket);
  return launch;
}

JoinedStore join(Launch& launch) {
  const JoinRequest request{.timeout = kTimeout};
  JoinedStore joined = join_store(launch, request);
  claim_rank(*joined.store, launch, request);
  join_ranks(*joined.store, launch, request);
  return joined;
}

// Rank 0: tells the CPU time that this took, and serves until the clients' end of the pipe is
// closed.
int serve(int ranks, int port, Socket socket, int told, int ended) {
  Launch launch = launch_of(0, ranks, port, std::move(socket));
  const double before = cpu_seconds();
  const JoinedStore joined = join(launch);
  char end = 0;
  const double cpu = ::read(ended, &end, 1) == 1 ? cpu_seconds() - before : 0;
  return ::write(told, &cpu, sizeof cpu) == sizeof cpu ? 0 : 1;
}

int run(int ranks) {
  Socket socket = value_or_throw(listen_on({"127.0.0.1", 0}));
  const int port = *bound_port(socket);
  int told[2] = {}, ended[2] = {};
  if (pipe(told) != 0 || pipe(ended) != 0) throw TrainError("no pipe");
  const pid_t server = fork();
  if (server == 0) {
    close(ended[1]);  // so that the server ends with this process
    _exit(serve(ranks, port, std::move(socket), told[1], ended[0]));
  }
  socket = {};
  const RaisedDescriptorLimit many;

  std::vector<double> joined(static_cast<std::size_t>(ranks - 1));
  std::atomic<int> failed{0};
  std::latch all_there(ranks), all_joined(ranks);
  Clock::time_point start;
  const auto join_as = [&](int rank) {
    all_there.arrive_and_wait();
    Launch launch = launch_of(rank, ranks, port);
    JoinedStore store;
    try {
      store = join(launch);
    } catch (const std::exception& error) {
      if (++failed == 1)
        std::fprintf(stderr, "rendezvous_clients: rank %d: %s\n", rank, error.what());
    }
    joined[static_cast<std::size_t>(rank - 1)] =
        std::chrono::duration<double>(Clock::now() - start).count();
    all_joined.arrive_and_wait();
  };
  std::vector<std::thread> clients;
  for (int rank = 1; rank < ranks; ++rank) clients.emplace_back(join_as, rank);
  const double before = cpu_seconds();
  start = Clock::now();
  all_there.arrive_and_wait();
  all_joined.arrive_and_wait();
  const double own = cpu_seconds() - before;
  double of_store = 0;
  if (::write(ended[1], "e", 1) != 1 ||
      ::read(told[0], &of_store, sizeof of_store) != sizeof of_store)
    ++failed;
  for (std::thread& client : clients) client.join();
  int status = 0;
  waitpid(server, &status, 0);
  std::ranges::sort(joined);
  std::printf("ranks=%d joined_s=%.4f median_s=%.4f store_cpu_s=%.4f clients_cpu_s=%.4f\n", ranks,
              joined.back(), joined[joined.size() / 2], of_store, own);
  return failed == 0 && status == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  if (ranks < 2) {
    std::fprintf(stderr, "usage: rendezvous_clients RANKS (2 or more)\n");
    return 2;
  }
  try {
    return run(ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rendezvous_clients: %s\n", error.what());
    return 1;
  }
}
