// Prints what resolve_launch finds for two communicators of an MPI program: the world, and its
// halves of even and odd ranks.
#include "bridge/mpi/mpi_launch.h"

#include <cstdio>

namespace {

int print(const char* name, MPI_Comm communicator) {
  const auto launch = torchbridge::resolve_launch(communicator);
  if (!launch) return std::fprintf(stderr, "%s\n", launch.error().message.c_str()), 1;
  const torchbridge::TorchEnv& env = launch->env;
  const torchbridge::Layout& at = env.layout;
  std::printf("%s %s rank %d/%d local %d/%d node %d/%d store %s:%d %s %s\n", name,
              launch->launcher.c_str(), at.rank, at.world_size, at.local_rank, at.local_world_size,
              at.node_rank, at.node_count, env.master.host.c_str(), env.master.port,
              launch->store_socket.open() ? "bound" : "-", env.run_id.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  const int failures = print("world", MPI_COMM_WORLD) + print(rank % 2 == 0 ? "even" : "odd", half);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::printf("MPI rank %d of %d, ranks add up to %d\n", rank, size, sum);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return failures;
}
