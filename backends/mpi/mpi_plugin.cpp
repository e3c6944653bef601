// libtorchbridge_mpi.so: the MPI backend of process groups.
#include <string>

#include <torchbridge/backend.h>

#include "backends/mpi/mpi_backend.h"

namespace torchbridge::mpi {
namespace {

train::MadeBackend make(const train::BackendRequest& request) {
  auto options = c10::make_intrusive<MpiOptions>(request.connect_timeout);
  options->global_ranks_in_group = request.ranks;
  options->group_name = request.group_name;
  auto backend = MpiBackend::create(options);
  const bool same =
      backend && backend->getRank() == request.rank && backend->getSize() == request.size;
  TORCH_CHECK(same, "backend 'mpi': this is rank ", request.rank, " of ", request.size,
              ", but in MPI ",
              backend ? "rank " + std::to_string(backend->getRank()) + " of " +
                            std::to_string(backend->getSize())
                      : "no rank of the group",
              ": start the ranks with mpirun, or with srun, an --mpi= that starts this MPI, and "
              "the ranks that Slurm "
              "gives (ranks=slurm)");
  backend->setTimeout(request.timeout);
  auto* const mpi = backend.get();
  return {std::move(backend), [mpi] { mpi->abort(); }};
}

}  // namespace
}  // namespace torchbridge::mpi

extern "C" __attribute__((visibility("default"))) void torchbridge_fill_backend_entry_4(
    torchbridge::train::BackendEntry& entry) {
  entry = {{"cpu", "cuda"}, torchbridge::mpi::make, {}};
}
