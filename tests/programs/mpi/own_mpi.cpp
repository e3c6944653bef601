// A program that initialises and finalises MPI itself, at the thread level of its argument, and
// uses the backend between. Usage: mpirun -n N mpi_own single|funneled|serialized|multiple
#include <map>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <mpi.h>

#include "backends/mpi/mpi_backend.h"
#include "tests/programs/mpi/expectations.h"

namespace {

using torchbridge::mpi::MpiBackend;

int level_of(const std::string& name) {
  const std::map<std::string, int> kLevels = {{"single", MPI_THREAD_SINGLE},
                                              {"funneled", MPI_THREAD_FUNNELED},
                                              {"serialized", MPI_THREAD_SERIALIZED},
                                              {"multiple", MPI_THREAD_MULTIPLE}};
  return kLevels.at(name);
}

// The program's own calls of MPI and the backend's in turns, which MPI_THREAD_SERIALIZED allows.
void take_turns(MpiBackend& backend) {
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<at::Tensor> tensors = {at::full({3}, static_cast<float>(rank))};
    backend.allreduce(tensors, {})->wait();
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(tensors[0].const_data_ptr<float>()[2] == static_cast<float>(sum),
           "the sum of the backend is that of MPI");
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int wanted = level_of(argv[1]);
  int offered = 0;
  MPI_Init_thread(&argc, &argv, wanted, &offered);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  c10::intrusive_ptr<MpiBackend> backend;
  const std::string error = error_of([&] { backend = MpiBackend::create(); });
  if (offered < MPI_THREAD_SERIALIZED) {
    expect(contains(error,
                    "the program initialised MPI for one thread only: call MPI_Init_thread with "
                    "MPI_THREAD_MULTIPLE"),
           "a thread level that is too low is rejected: " + error);
  } else {
    expect(error.empty(), "thread level " + std::string(argv[1]) + ": " + error);
    if (backend) take_turns(*backend);
  }
  MPI_Finalize();
  if (backend) {
    std::vector<at::Tensor> tensors = {at::full({1}, 1.0F)};
    const std::string late = error_of([&] { backend->allreduce(tensors, {})->wait(); });
    expect(contains(late, "the program has finalised MPI"),
           "an operation after MPI_Finalize: " + late);
  }
  if (rank == 0)
    std::printf("%s: MPI offered level %d, %s\n", argv[1], offered, backend ? "used" : "rejected");
  return failures > 0 ? 1 : 0;
}
