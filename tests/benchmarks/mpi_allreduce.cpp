// One all-reduce over the MPI backend and over gloo (loopback TCP), on the ranks that mpirun
// starts: microseconds of 1 KB and GB/s of 64 MB, medians. Usage: mpirun -np N mpi_allreduce
// STORE_FILE
#include <algorithm>
#include <chrono>
#include <cstdio>

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "backends/mpi/mpi_backend.h"

namespace {

double median_seconds(c10d::Backend& backend, std::int64_t bytes, int times) {
  std::vector<at::Tensor> tensors = {at::ones({bytes / 4})};
  std::vector<double> found;
  for (int i = -3; i < times; ++i) {
    tensors[0].fill_(1);
    backend.barrier({})->wait();
    const auto begin = std::chrono::steady_clock::now();
    backend.allreduce(tensors, {})->wait();
    if (i >= 0)
      found.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(found, found.begin() + times / 2);
  return found[static_cast<std::size_t>(times) / 2];
}

}  // namespace

int main(int, char** arguments) {
  at::set_num_threads(1);
  const auto mpi = torchbridge::mpi::MpiBackend::create();
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(300));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  options->threads = 2;
  c10d::ProcessGroupGloo gloo(c10::make_intrusive<c10d::FileStore>(arguments[1], mpi->getSize()),
                              mpi->getRank(), mpi->getSize(), options);
  for (c10d::Backend* backend :
       {static_cast<c10d::Backend*>(mpi.get()), static_cast<c10d::Backend*>(&gloo)}) {
    constexpr std::int64_t kSmall = 1 << 10, kLarge = 64 << 20;
    const double latency = median_seconds(*backend, kSmall, 2000),
                 large = median_seconds(*backend, kLarge, 9);
    if (mpi->getRank() == 0) {
      std::printf("%s ranks=%d latency_us=%.1f bandwidth_GB_s=%.2f\n",
                  backend->getBackendName().c_str(), mpi->getSize(), latency * 1e6,
                  static_cast<double>(kLarge) / large / 1e9);
    }
  }
  mpi->barrier({})->wait();
}
